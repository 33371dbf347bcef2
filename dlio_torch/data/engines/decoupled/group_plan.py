"""Read plans of groups of batches: source extents in files and destinations in one memory block.

Everything is arrays of numbers; the loops are over files and arrays, never over samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.copy_plan import CopyPlan, begins_of, by_group, in_order
from dlio_torch.data.engines.decoupled.open_files import Files, OpenFile
from dlio_torch.data.engines.decoupled.open_parts import OpenPart
from dlio_torch.data.order.orders import Indices
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.layout import Chunks, Copies, Extents, Ints, Records
from dlio_torch.formats.core.layout_parts import PartedLayout

_Share = tuple[int, "slice | Ints"]  # file, and positions of its samples
# Positions in their files, which samples are of which file, and the files.
_Located = tuple[Ints, Sequence[_Share], Sequence[OpenFile]]
_ALIGNED = 64  # bytes to which the arrays of a group begin
_NOWHERE = np.zeros(0, np.int32)
_NO_EXTENTS = Extents(*(np.zeros(0, np.int64) for _ in range(3)))


@dataclass(frozen=True)
class ArraySection:
    """Section of the block that holds one array of all samples of the group.

    Attributes:
        spec: the array.
        first: first byte.
        ends: bytes up to the end of each sample, counted from ``first``; one more entry than samples.
    """

    spec: ArraySpec
    first: int
    ends: Ints


@dataclass(slots=True)  # not frozen, which takes twice as long to create
class ReadPlan:
    """Read plan of one group of batches.

    Attributes:
        indices: sample numbers of all batches, one after another.
        counts: samples of each batch.
        sections: the arrays.
        size: bytes of the block.
        descriptors: of each extent that goes to its destination as it is, its file; int32.
        extents: these extents, in the order of files and of bytes in each; ``to`` counts from the block's begin.
        chunks: chunks that are decoded first, each with its descriptor and its file.
        records: records that are taken apart.
        copies: extents that are in memory already.
        paths: the file of each descriptor.
        files: keeps the descriptors open.
        row: all of it as one task of the read core, int64 of ``(1, fields)``; ``None``: it is several, or not known.
    """

    indices: Indices
    counts: tuple[int, ...]
    sections: Sequence[ArraySection]
    size: int
    descriptors: npt.NDArray[np.int32]
    extents: Extents
    chunks: Sequence[tuple[int, Chunks]]
    records: Sequence[Records]
    copies: Sequence[Copies]
    paths: dict[int, Path]
    files: Sequence[OpenFile | OpenPart]
    row: Ints | None = None


class Planner:
    """Thread-safe planner of groups of batches.

    Args:
        specs: arrays of a sample.
        manifest: where each sample lies.
        files: the open files.
        block: arrays begin as far from a border of blocks of so many bytes as the first sample does in its file, so
            that direct reads can go straight to their destination; 0: anywhere.
    """

    def __init__(self, specs: Sequence[ArraySpec], manifest: Manifest, files: Files, block: int = 0) -> None:
        self._specs = specs
        self._arrays = range(len(specs))
        self._sizes = {spec.name: math.prod(spec.shape) * spec.dtype.itemsize for spec in specs}
        self._manifest = manifest
        self._files = files
        self._block = block
        self._may_join = not block and manifest.num_files <= files.limit
        self._all_alike = not block and not any(spec.variable for spec in specs)
        self._known: dict[int, tuple[list[ArraySection], int]] = {}  # sections of so many samples that are all alike
        #: Whether :meth:`several` does better than one plan after another: known from the last plan.
        self.joins = False

    def __call__(self, batches: Sequence[Indices]) -> ReadPlan:
        """Plans one group of batches of sample numbers.

        Raises:
            DataError: a file is missing or damaged.
        """
        indices = np.concatenate(batches) if len(batches) > 1 else np.ascontiguousarray(batches[0])
        located = rows, parts, files = self._located(indices)
        sizes = [self._sizes_of(number, parts, files, rows) for number in self._arrays]
        sections, size = self._sections(sizes, located)
        into = [section.first + section.ends[:-1] for section in sections]
        moves = self._moves(into, located)
        self.joins = self._may_join and not moves.chunks and all(map(self._joinable, files))
        return _plan(indices, batches, sections, size, in_order(moves), files)

    def several(self, groups: Sequence[Sequence[Indices]]) -> list[ReadPlan]:
        """Plans several groups at hardly more than the cost of one; results equal those of separate planning.

        Raises:
            DataError: a file is missing or damaged.
        """
        if not self.joins or len(groups) == 1:
            return [self(batches) for batches in groups]
        indices = np.concatenate([batch for batches in groups for batch in batches])
        located = rows, parts, files = self._located(indices)
        sizes = [self._sizes_of(number, parts, files, rows) for number in self._arrays]
        borders = [0, *accumulate(sum(map(len, batches)) for batches in groups)]
        blocks = [self._sections([each[low:high] for each in sizes]) for low, high in pairwise(borders)]
        into = [
            np.concatenate([begin + sections[array].first + sections[array].ends[:-1]
                            for (sections, _), begin in zip(blocks, begins_of(len(groups)), strict=True)])
            for array in self._arrays
        ]  # fmt: skip
        moves = self._moves(into, located)
        if moves.chunks:  # groups may share some: a chunk is then part of each of them
            return [self(batches) for batches in groups]
        return [
            _plan(indices[low:high], batches, *block, copy_plan, files)
            for batches, (low, high), block, copy_plan in zip(
                groups, pairwise(borders), blocks, by_group(moves, len(groups)), strict=True
            )
        ]

    def _joinable(self, file: OpenFile) -> bool:
        """Whether planning a file for many groups at once does not delay the first group."""
        layout = file.layout
        if any(isinstance(array, PartedLayout) for array in layout.arrays.values()):
            return False  # the files of many groups would be open together
        looks_up = layout.records is not None and any(spec.variable for spec in self._specs)  # reads to learn sizes
        return not (layout.once or layout.read_bytes or looks_up)

    def apart(self, indices: Indices, take: Callable[[Ints], Ints]) -> tuple[ReadPlan, Ints, Ints]:
        """Plans samples that each go to separate memory, with their arrays one after another.

        Args:
            indices: the samples; int64.
            take: gives addresses of memory of these sizes.

        Returns:
            The plan, for a block that begins at address 0; the address of each sample, and the bytes of its
            arrays: int64 of ``(samples,)`` and of ``(samples, arrays)``.

        Raises:
            DataError: a file is missing or damaged.
        """
        located = self._located(indices)
        sizes = self._all_sizes(located)
        ends = np.cumsum(sizes, axis=1)
        addresses = take(ends[:, -1])
        into = list((addresses[:, None] + ends - sizes).T)
        moves = self._moves(into, located)
        return _plan(indices, [indices], (), 0, in_order(moves), located[2]), addresses, sizes

    def of(self, specs: Sequence[ArraySpec]) -> Planner:
        """Returns a planner for other arrays of the same samples."""
        return Planner(specs, self._manifest, self._files, self._block)

    def sizes(self, indices: Indices) -> Ints:
        """Bytes of each sample's arrays, known without reading the samples; int64 of ``(samples, arrays)``.

        Raises:
            DataError: a file is missing or damaged.
        """
        return self._all_sizes(self._located(indices))

    def joined(self, batches: Sequence[Indices], sizes: Ints) -> ReadPlan:
        """Plans batches whose samples are in memory, in the layout of :meth:`apart`."""
        sections, size = self._sections(list(sizes.T))
        indices = np.concatenate(batches)
        return _plan(indices, batches, sections, size, CopyPlan(), ())

    def _located(self, indices: Indices) -> _Located:
        numbers, rows = self._manifest.locate_all(indices)
        parts = _by_file(numbers) if self._manifest.num_files > 1 else [(0, slice(None))]
        return rows, parts, [self._files.get(number) for number, _ in parts]

    def _moves(self, into: Sequence[Ints], located: _Located) -> CopyPlan:
        rows, parts, files = located
        moves = CopyPlan()
        for (_, positions), file in zip(parts, files, strict=True):
            if file.layout.records is not None:
                to = np.stack([targets[positions] for targets in into], axis=1)
                moves.records.append(file.layout.records.plan(rows[positions], to))
                continue
            for spec, targets in zip(self._specs, into, strict=True):
                array = file.layout.arrays[spec.name]
                if isinstance(array, PartedLayout):
                    self._add_parts(moves, array, rows[positions], targets[positions])
                    continue
                moves.add(array, array.plan(rows[positions], targets[positions]), file.descriptors.get(array.path))
        return moves

    def _add_parts(self, moves: CopyPlan, array: PartedLayout, rows: Ints, into: Ints) -> None:
        """Adds samples of an array that lies in many files."""
        for number, positions in _by_file(array.part_of(rows)) if len(rows) else ():
            part = self._files.parts.get(array, number)
            moves.parts.append(part)
            planned = part.layout.plan(rows[positions] - part.first, into[positions])
            moves.add(part.layout, planned, part.descriptor)

    def _all_sizes(self, located: _Located) -> Ints:
        rows, parts, files = located
        return np.stack([self._sizes_of(number, parts, files, rows) for number in self._arrays], axis=1)

    def _sizes_of(self, number: int, parts: Sequence[_Share], files: Sequence[OpenFile], rows: Ints) -> Ints:
        """Bytes in memory of array ``number`` of each sample."""
        spec = self._specs[number]
        if not spec.variable:
            return np.full(len(rows), self._sizes[spec.name])
        sizes = np.empty(len(rows), np.int64)
        for (_, positions), file in zip(parts, files, strict=True):
            sizes[positions] = _sizes(file, number, spec, rows[positions])
        return sizes

    def _sections(self, sizes: Sequence[Ints], located: _Located | None = None) -> tuple[list[ArraySection], int]:
        """Sections of a block for samples of these sizes, and the size of the block in bytes."""
        count = len(sizes[0]) if self._all_alike else -1
        known = self._known.get(count)
        if known is not None:
            return known
        sections, size = [], 0
        for spec, each in zip(self._specs, sizes, strict=True):
            ends = np.zeros(len(each) + 1, np.int64)
            np.cumsum(each, out=ends[1:])
            if self._block and located is not None:
                size = self._as_in_file(size, spec, located)
            sections.append(ArraySection(spec, size, ends))
            size += -(-int(ends[-1]) // _ALIGNED) * _ALIGNED
        if self._all_alike:
            self._known = {count: (sections, size)}  # the last one: groups differ in size at the end of an epoch
        return sections, size

    def _as_in_file(self, size: int, spec: ArraySpec, located: _Located) -> int:
        """The next offset from ``size`` on with the same alignment as the first sample in its file."""
        rows, (share, *_), (file, *_) = located
        if file.layout.records is not None:
            return size
        planned = file.layout.arrays[spec.name].plan(rows[share[1]][:1], np.zeros(1, np.int64))
        within = int(planned.offsets[0]) % self._block if isinstance(planned, Extents) else 0
        if within % _ALIGNED:  # elements must be aligned, too
            return size
        return size + (within - size) % self._block


def _sizes(file: OpenFile, number: int, spec: ArraySpec, rows: Ints) -> Ints:
    """Bytes in memory of array ``number`` of the samples at ``rows``."""
    records = file.layout.records
    return file.layout.arrays[spec.name].sizes(rows) if records is None else records.sizes(rows)[:, number]


def _by_file(numbers: Ints) -> list[_Share]:
    """Groups sample positions by file."""
    first = int(numbers[0])
    if bool((numbers == first).all()):
        return [(first, slice(None))]
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    return [(int(ordered[low]), order[low:high]) for low, high in pairwise(borders)]


def _plan(
    indices: Indices,
    batches: Sequence[Indices],
    sections: Sequence[ArraySection],
    size: int,
    moves: CopyPlan,
    files: Sequence[OpenFile],
) -> ReadPlan:
    descriptors, extents = (moves.descriptors[0], moves.extents[0]) if moves.extents else (_NOWHERE, _NO_EXTENTS)
    return ReadPlan(
        indices, tuple(map(len, batches)), sections, size, descriptors, extents, moves.chunks, moves.records,
        moves.copies, moves.paths, (*files, *moves.parts), moves.row,
    )  # fmt: skip
