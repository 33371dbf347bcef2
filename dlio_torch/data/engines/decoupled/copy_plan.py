"""Copy plans of batches, and their division into one plan per group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.data.engines.decoupled.open_parts import OpenPart
from dlio_torch.formats.core.layout import (
    ArrayLayout,
    Chunks,
    Copies,
    Extents,
    Ints,
    Records,
    join_extents,
    stable_order,
)
from dlio_torch.native.memory import address_of
from dlio_torch.native.read_core import EXTENTS, RECORDS

_GROUP_BITS = 40
"""Address bits of the virtual block of each group when several groups are planned together."""
_IN_BLOCK = (1 << _GROUP_BITS) - 1
_EXTENT_BYTES = (4, 8, 8, 8, 8, 0)
"""Bytes of an element of the arrays of a task of extents."""
_OFFSET_BITS = 50
"""Bits of an int64 that remain for an offset beside the number of a group."""


@dataclass
class CopyPlan:
    """Extents, chunks, records and copies that fill a block; addresses are relative to the begin of the block.

    Attributes:
        descriptors: for each of ``extents``, the file of each extent; int32.
        extents: go to their destination as they are.
        chunks: are decoded first, each with its descriptor.
        records: are taken apart.
        copies: extents that are in memory already.
        paths: the file of each descriptor.
        parts: open files beside those of the data set, which are needed until everything is read.
        row: all of it as one task of the read core, int64 of ``(1, fields)``; ``None``: it is several, or not known.
    """

    descriptors: list[npt.NDArray[np.int32]] = field(default_factory=list)
    extents: list[Extents] = field(default_factory=list)
    chunks: list[tuple[int, Chunks]] = field(default_factory=list)
    records: list[Records] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    paths: dict[int, Path] = field(default_factory=dict)
    parts: list[OpenPart] = field(default_factory=list)
    row: Ints | None = None

    def add(self, array: ArrayLayout, planned: Extents | Chunks | Copies, descriptor: int | None) -> None:
        """Add what was planned for samples of one array in one file.

        Args:
            array: the array.
            planned: the reads.
            descriptor: of the file; ``None``: the array is in memory.
        """
        if isinstance(planned, Copies):
            self.copies.append(planned)
            return
        assert descriptor is not None
        self.paths[descriptor] = array.path
        if isinstance(planned, Chunks):
            self.chunks.append((descriptor, planned))
        else:
            self.extents.append(planned)
            self.descriptors.append(np.full(len(planned.offsets), descriptor, np.int32))


def begins_of(groups: int) -> range:
    """First virtual address of each group's block, for groups that are planned together."""
    return range(0, groups << _GROUP_BITS, 1 << _GROUP_BITS)


def by_group(moves: CopyPlan, groups: int) -> list[CopyPlan]:
    """Splits the joint plan of several groups, without chunks and with sorted extents, into one plan per group."""
    parts = [CopyPlan() for _ in range(groups)]
    if moves.extents:
        descriptors, extents = np.concatenate(moves.descriptors), join_extents(moves.extents)
        group = extents.to >> _GROUP_BITS
        if len(moves.paths) == 1 and int(extents.offsets.max(initial=0)) < 1 << _OFFSET_BITS:
            order = np.argsort((group << _OFFSET_BITS) | extents.offsets)  # several times as fast as by two keys
        else:
            order = np.lexsort((extents.offsets, descriptors, group))
        descriptors, extents = descriptors[order], extents.taken(order)
        extents = Extents(extents.offsets, extents.lengths, extents.to & _IN_BLOCK, extents.turned)
        borders = _borders(group[order], groups)
        if not (moves.records or moves.copies):
            _add_rows(parts, extents_row(descriptors, extents), borders, _EXTENT_BYTES)
        for part, low, high in _shares(parts, borders):
            part.descriptors.append(descriptors[low:high])
            part.extents.append(extents.taken(slice(low, high)))
            part.paths = moves.paths
            if len(moves.paths) > 1:
                part.paths = {descriptor: moves.paths[descriptor] for descriptor in set(descriptors[low:high].tolist())}
    for records in moves.records:
        group = records.to[:, 0] >> _GROUP_BITS
        order = stable_order(group)  # records stay in the order of their offsets
        borders = _borders(group[order], groups)
        offsets, spans, sizes = records.offsets[order], records.spans[order], records.sizes[order]
        ordered = Records(offsets, spans, records.to[order] & _IN_BLOCK, sizes, records.layout)
        row = records_row(ordered)
        if row and len(moves.records) == 1 and not (moves.extents or moves.copies):
            each = 8 * sizes.shape[1]
            _add_rows(parts, row, borders, (0, 8, 8, each, each, 0))
        for part, low, high in _shares(parts, borders):
            share = slice(low, high)
            part.records.append(Records(offsets[share], spans[share], ordered.to[share], sizes[share], records.layout))
    for copies in moves.copies:
        group = copies.to >> _GROUP_BITS
        order = stable_order(group)
        for part, low, high in _shares(parts, _borders(group[order], groups)):
            mine = order[low:high]
            part.copies.append(Copies(copies.sources[mine], copies.lengths[mine], copies.to[mine] & _IN_BLOCK))
    return parts


def _borders(ordered: Ints, groups: int) -> Ints:
    """First item of each group in ascending numbers of groups, and the end of the last group."""
    return np.searchsorted(ordered, np.arange(groups + 1))


def _add_rows(parts: Sequence[CopyPlan], whole: tuple[int, ...], borders: Ints, sizes: Sequence[int]) -> None:
    """Gives each plan its share of a task; ``sizes``: bytes of an element of each array that the task names."""
    rows = np.repeat(np.array([whole], np.int64), len(parts), axis=0)
    rows[:, 1] = np.diff(borders)
    rows[:, 2:] += np.where(rows[:, 2:] > 0, borders[:-1, None] * np.array(sizes), 0)
    for number in np.flatnonzero(rows[:, 1]).tolist():
        parts[number].row = rows[number : number + 1]


def extents_row(descriptors: npt.NDArray[np.int32], extents: Extents) -> tuple[int, ...]:
    """Extents as a task of the read core, which reads the arrays where they are."""
    turned = 0 if extents.turned is None else address_of(extents.turned)
    arrays = map(address_of, (extents.offsets, extents.lengths, extents.to))
    return (EXTENTS, len(extents.offsets), address_of(descriptors), *arrays, turned, 0)


def records_row(records: Records) -> tuple[int, ...]:
    """Records as a task of the read core, which reads the arrays where they are; empty if it cannot read them."""
    file = records.layout.native_file()
    if file is None:
        return ()
    arrays = records.offsets, records.spans, records.to, records.sizes, file
    return (RECORDS, len(records.offsets), 0, *map(address_of, arrays))


def _shares(parts: Sequence[CopyPlan], borders: Ints) -> list[tuple[CopyPlan, int, int]]:
    """The plans that get something, with the first item of each and the one behind its last."""
    limits = borders.tolist()
    ranges = zip(parts, limits[:-1], limits[1:], strict=True)
    return [(part, low, high) for part, low, high in ranges if low < high]


def in_order(moves: CopyPlan) -> CopyPlan:
    """The same plan with all extents sorted by file and offset, so that neighbours are adjacent."""
    if not moves.extents:
        return moves
    if len(moves.extents) == 1:  # of one file
        descriptors, extents = moves.descriptors[0], moves.extents[0]
        if not (extents.offsets[1:] < extents.offsets[:-1]).any():
            return moves
        order = np.argsort(extents.offsets, kind="stable")
    else:
        descriptors, extents = np.concatenate(moves.descriptors), join_extents(moves.extents)
        order = np.lexsort((extents.offsets, descriptors))
    return replace(moves, descriptors=[descriptors[order]], extents=[extents.taken(order)])
