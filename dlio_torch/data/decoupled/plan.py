"""The plan of a group of batches: which bytes of which files go where in one block of memory.

Everything is arrays of numbers; the loops are over files and arrays, never over samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.data.decoupled.files import Files, OpenFile
from dlio_torch.data.layout import Manifest
from dlio_torch.data.orders import Indices
from dlio_torch.formats.batch import ArraySpec
from dlio_torch.formats.places.base import Chunks, Ints, Pieces, Records

_Share = tuple[int, "slice | Ints"]  # file, and positions of its samples
_ALIGNED = 64  # bytes to which the arrays of a group begin


@dataclass(frozen=True)
class Section:
    """One array of all samples of the group, in the block.

    Attributes:
        spec: the array.
        first: first byte.
        ends: bytes up to the end of each sample, counted from ``first``; one more entry than samples.
    """

    spec: ArraySpec
    first: int
    ends: Ints


@dataclass(frozen=True)
class Plan:
    """What to read for a group of batches.

    Attributes:
        indices: sample numbers of all batches, one after another.
        counts: samples of each batch.
        sections: the arrays.
        size: bytes of the block.
        descriptors: of each piece that goes to its place as it is, its file; int32.
        pieces: these pieces, in the order of files and of bytes in each; ``to`` counts from the block's begin.
        chunks: chunks that are decoded first, each with its descriptor and its file.
        records: records that are taken apart.
        paths: the file of each descriptor.
        files: keeps the descriptors open.
    """

    indices: Indices
    counts: tuple[int, ...]
    sections: Sequence[Section]
    size: int
    descriptors: npt.NDArray[np.int32]
    pieces: Pieces
    chunks: Sequence[tuple[int, Chunks]]
    records: Sequence[Records]
    paths: dict[int, Path]
    files: Sequence[OpenFile]


class Planner:
    """Plans groups of batches; for any number of threads.

    Args:
        specs: arrays of a sample.
        manifest: where each sample lies.
        files: the open files.
    """

    def __init__(self, specs: Sequence[ArraySpec], manifest: Manifest, files: Files) -> None:
        self._specs = specs
        self._sizes = {spec.name: math.prod(spec.shape) * spec.dtype.itemsize for spec in specs}
        self._manifest = manifest
        self._files = files

    def __call__(self, batches: Sequence[Indices]) -> Plan:
        """The plan of these batches of sample numbers.

        Raises:
            DataError: a file is missing or damaged.
        """
        indices = np.concatenate(batches) if len(batches) > 1 else np.ascontiguousarray(batches[0])
        numbers, rows = self._manifest.locate_all(indices)
        parts = _by_file(numbers) if self._manifest.num_files > 1 else [(0, slice(None))]
        files = [self._files.get(number) for number, _ in parts]
        sections, size = self._sections(parts, files, rows)
        descriptors: list[npt.NDArray[np.int32]] = []
        pieces: list[Pieces] = []
        chunks: list[tuple[int, Chunks]] = []
        records: list[Records] = []
        paths: dict[int, Path] = {}
        for (_, positions), file in zip(parts, files, strict=True):
            if file.native.records is not None:
                into = np.stack([section.first + section.ends[:-1][positions] for section in sections], axis=1)
                records.append(file.native.records.plan(rows[positions], into))
                continue
            for section in sections:
                places = file.native.arrays[section.spec.name]
                descriptor = file.descriptors[places.path]
                paths[descriptor] = places.path
                found = places.plan(rows[positions], section.first + section.ends[:-1][positions])
                if isinstance(found, Chunks):
                    chunks.append((descriptor, found))
                else:
                    pieces.append(found)
                    descriptors.append(np.full(len(found.offsets), descriptor, np.int32))
        where, together = _in_order(descriptors, pieces)
        counts = tuple(map(len, batches))
        return Plan(indices, counts, sections, size, where, together, chunks, records, paths, files)

    def _sections(self, parts: Sequence[_Share], files: Sequence[OpenFile], rows: Ints) -> tuple[list[Section], int]:
        sections, size = [], 0
        for number, spec in enumerate(self._specs):
            if spec.variable:
                sizes = np.empty(len(rows), np.int64)
                for (_, positions), file in zip(parts, files, strict=True):
                    sizes[positions] = _sizes(file, number, spec, rows[positions])
                ends = np.zeros(len(rows) + 1, np.int64)
                np.cumsum(sizes, out=ends[1:])
            else:
                ends = np.arange(len(rows) + 1) * self._sizes[spec.name]
            sections.append(Section(spec, size, ends))
            size += -(-int(ends[-1]) // _ALIGNED) * _ALIGNED
        return sections, size


def _sizes(file: OpenFile, number: int, spec: ArraySpec, rows: Ints) -> Ints:
    """Bytes in memory of array ``number`` of the samples at ``rows``."""
    records = file.native.records
    return file.native.arrays[spec.name].sizes(rows) if records is None else records.sizes(rows)[:, number]


def _by_file(numbers: Ints) -> list[_Share]:
    """Each file, and the positions of its samples."""
    first = int(numbers[0])
    if bool((numbers == first).all()):
        return [(first, slice(None))]
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    borders = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    return [(int(ordered[low]), order[low:high]) for low, high in pairwise(borders)]


def _in_order(
    descriptors: Sequence[npt.NDArray[np.int32]], pieces: Sequence[Pieces]
) -> tuple[npt.NDArray[np.int32], Pieces]:
    """All pieces together, in the order of files and of bytes in each, so that neighbours meet."""
    if not pieces:
        nothing = np.zeros(0, np.int64)
        return np.zeros(0, np.int32), Pieces(nothing, nothing, nothing)
    where, one = descriptors[0], pieces[0]
    if len(pieces) > 1:
        where = np.concatenate(descriptors)
        one = Pieces(*(np.concatenate([getattr(p, name) for p in pieces]) for name in ("offsets", "lengths", "to")))
    backwards = one.offsets[1:] < one.offsets[:-1]
    if len(pieces) == 1 and not backwards.any():
        return where, one
    order = np.lexsort((one.offsets, where)) if len(pieces) > 1 else np.argsort(one.offsets, kind="stable")
    return where[order], Pieces(one.offsets[order], one.lengths[order], one.to[order])
