"""What is to be moved for batches, and which part of it belongs to which group of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.layout import Chunks, Copies, Ints, Pieces, Records, together

_GROUP_BITS = 40
"""Groups that are planned together have blocks of memory of so many bits of an address each, one behind another."""
_IN_BLOCK = (1 << _GROUP_BITS) - 1
_OFFSET_BITS = 50
"""What is left of 63 beside the number of a group."""


@dataclass
class Moves:
    """What the files say of where samples lie; addresses count from the begin of a block.

    Attributes:
        descriptors: for each of ``pieces``, the file of each piece; int32.
        pieces: go to their place as they are.
        chunks: are decoded first, each with its descriptor.
        records: are taken apart.
        copies: pieces that are in memory already.
        paths: the file of each descriptor.
    """

    descriptors: list[npt.NDArray[np.int32]] = field(default_factory=list)
    pieces: list[Pieces] = field(default_factory=list)
    chunks: list[tuple[int, Chunks]] = field(default_factory=list)
    records: list[Records] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    paths: dict[int, Path] = field(default_factory=dict)


def begins_of(groups: int) -> range:
    """Where the block of each group begins, among those that are planned together."""
    return range(0, groups << _GROUP_BITS, 1 << _GROUP_BITS)


def by_group(moves: Moves, groups: int) -> list[Moves]:
    """The part of each group that is planned together with others, without chunks; pieces are in order."""
    parts = [Moves() for _ in range(groups)]
    if moves.pieces:
        where, pieces = np.concatenate(moves.descriptors), together(moves.pieces)
        group = pieces.to >> _GROUP_BITS
        if len(moves.paths) == 1 and int(pieces.offsets.max(initial=0)) < 1 << _OFFSET_BITS:
            order = np.argsort((group << _OFFSET_BITS) | pieces.offsets)  # several times as fast as by two keys
        else:
            order = np.lexsort((pieces.offsets, where, group))
        where, pieces = where[order], pieces.taken(order)
        to = pieces.to & _IN_BLOCK
        for part, low, high in _shares(parts, group[order]):
            part.descriptors.append(where[low:high])
            part.pieces.append(replace(pieces.taken(slice(low, high)), to=to[low:high]))
            part.paths = moves.paths
            if len(moves.paths) > 1:
                part.paths = {descriptor: moves.paths[descriptor] for descriptor in set(where[low:high].tolist())}
    for records in moves.records:
        group = records.to[:, 0] >> _GROUP_BITS
        order = np.argsort(group, kind="stable")  # records stay in the order of their offsets
        for part, low, high in _shares(parts, group[order]):
            mine = order[low:high]
            to = records.to[mine] & _IN_BLOCK
            offsets, spans, sizes = records.offsets[mine], records.spans[mine], records.sizes[mine]
            part.records.append(replace(records, offsets=offsets, spans=spans, to=to, sizes=sizes))
    for copies in moves.copies:
        group = copies.to >> _GROUP_BITS
        order = np.argsort(group, kind="stable")
        for part, low, high in _shares(parts, group[order]):
            mine = order[low:high]
            part.copies.append(Copies(copies.sources[mine], copies.lengths[mine], copies.to[mine] & _IN_BLOCK))
    return parts


def _shares(parts: Sequence[Moves], groups: Ints) -> list[tuple[Moves, int, int]]:
    """The stretch of each group that has one in ``groups``, which ascends."""
    borders = np.searchsorted(groups, np.arange(len(parts) + 1)).tolist()
    stretches = zip(parts, borders[:-1], borders[1:], strict=True)
    return [(part, low, high) for part, low, high in stretches if low < high]


def in_order(moves: Moves) -> Moves:
    """The same with all pieces together, in the order of files and of bytes in each, so that neighbours meet."""
    if not moves.pieces:
        return moves
    if len(moves.pieces) == 1:  # of one file
        where, pieces = moves.descriptors[0], moves.pieces[0]
        if not (pieces.offsets[1:] < pieces.offsets[:-1]).any():
            return moves
        order = np.argsort(pieces.offsets, kind="stable")
    else:
        where, pieces = np.concatenate(moves.descriptors), together(moves.pieces)
        order = np.lexsort((pieces.offsets, where))
    return replace(moves, descriptors=[where[order]], pieces=[pieces.taken(order)])
