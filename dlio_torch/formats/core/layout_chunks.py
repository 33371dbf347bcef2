"""Layout of an array that is stored in chunks, as HDF5 and Zarr store it.

A sample is one row of the array along its first axis, or some consecutive rows.  What a chunk and a row have in
common is a number of runs, contiguous in both; the runs of one row are the same for all rows, so they are found
once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Chunks, Extents, Ints
from dlio_torch.formats.core.layout_rows import counted, within

_LEAST_PIECE = 512
"""Least bytes of a run in an unfiltered chunk to be read directly to its destination, without its neighbours."""


@dataclass(frozen=True)
class Runs:
    """Contiguous runs of one row; int64 arrays of shape ``(runs,)``.

    Attributes:
        chunk: number of the chunk among those that cover the row.
        source: first byte in the part of the chunk that is one row.
        lengths: bytes.
        to: first byte in the row in memory.
    """

    chunk: Ints
    source: Ints
    lengths: Ints
    to: Ints


def runs_of(shape: Sequence[int], chunk: Sequence[int], itemsize: int, select: Sequence[int] = ()) -> Runs:
    """Returns the contiguous runs of a row.

    Args:
        shape: of a row.
        chunk: shape of a chunk, without its first axis.
        itemsize: bytes of an element.
        select: growing indices along the first axis of a row that are wanted; empty: all.
    """
    if not shape:
        zero = np.zeros(1, np.int64)
        return Runs(zero, zero, np.array([itemsize], np.int64), zero)
    # The last axis that is cut: behind it a chunk is as long as the row.
    cut = max((axis for axis, (a, b) in enumerate(zip(shape, chunk, strict=True)) if a != b), default=0)
    wanted = np.array(select if select else range(shape[0]), np.int64)
    memory = [len(wanted), *shape[1:]]
    runs = [np.zeros(1, np.int64) for _ in range(4)]  # chunk, source, lengths in elements, to
    for axis in range(cut + 1):
        indices = wanted if axis == 0 else np.arange(shape[axis], dtype=np.int64)
        length = chunk[axis]
        order = np.arange(len(indices), dtype=np.int64)
        count = np.ones(len(indices), np.int64)
        if axis == cut:
            begins = np.ones(len(indices), bool)
            begins[1:] = (np.diff(indices) != 1) | (indices[1:] % length == 0)
            order = np.flatnonzero(begins)
            count = np.diff(np.append(order, len(indices)))
            indices = indices[order]
        tail = math.prod(chunk[axis + 1 :]) * itemsize, math.prod(memory[axis + 1 :]) * itemsize
        chunks = math.prod(-(-a // b) for a, b in zip(shape[axis + 1 :], chunk[axis + 1 :], strict=True))
        added = [
            indices // length * chunks,
            indices % length * tail[0],
            count * tail[0] if axis == cut else 0 * indices,
            order * tail[1],
        ]
        runs = [(old[:, None] + new).reshape(-1) for old, new in zip(runs, added, strict=True)]
    return Runs(*runs)


@dataclass(frozen=True)
class ChunkTable:
    """Chunks of an array: their offsets, sizes and filters.

    Attributes:
        path: its file.
        name: its name, for messages.
        shape: its shape, rows first.
        chunk: shape of a chunk.
        itemsize: bytes of an element.
        offsets: first byte in the file of each chunk, in C order of their coordinates; -1: never written.
        sizes: stored bytes of each.
        skipped: bit ``i``: stored without filter ``i``.
        filters: names of the filters.
        fill: an element of the chunks that were never written; ``None``: it is not known.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    itemsize: int
    offsets: Ints
    sizes: Ints
    skipped: Ints
    filters: tuple[str, ...]
    fill: bytes | None = None


class Chunked(ArrayLayout):
    """Layout of samples of a chunked array.

    Args:
        stored: the array.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.
        select: indices along the second axis that are read, growing; empty: all.
        runs: runs of a row, from :func:`runs_of`, where they are known; ``None``: they are found here.
    """

    def __init__(
        self,
        stored: ChunkTable,
        extents: tuple[Ints, Ints] | None = None,
        select: Sequence[int] = (),
        runs: Runs | None = None,
    ) -> None:
        self.path = stored.path
        self._stored = stored
        self._extents = extents
        self._runs = runs or runs_of(stored.shape[1:], stored.chunk[1:], stored.itemsize, select)
        self._row_bytes = int(self._runs.lengths.sum())
        self._chunk_bytes = math.prod(stored.chunk) * stored.itemsize
        self._chunk_row_bytes = self._chunk_bytes // stored.chunk[0]
        pairs = zip(stored.shape[1:], stored.chunk[1:], strict=True)
        self._chunks_of_row = math.prod(-(-a // b) for a, b in pairs)
        # Rows follow each other without a gap, in the chunk as in memory.
        self._whole_rows = len(self._runs.chunk) == 1 and self._row_bytes == self._chunk_row_bytes

    def sizes(self, rows: Ints) -> Ints:
        return self._rows(rows)[1] * self._row_bytes

    def _rows(self, samples: Ints) -> tuple[Ints, Ints]:
        """First row and number of rows of each sample."""
        if self._extents is None:
            return samples, np.ones(len(samples), np.int64)
        return within(self._extents, samples, self._stored.shape[0], self._stored.name, self.path)

    def plan(self, rows: Ints, into: Ints) -> Extents | Chunks:
        first, count = self._rows(rows)
        cut = self._by_chunk if self._whole_rows else self._by_row
        chunk, source, lengths, to = cut(first, count, into)
        stored = self._stored
        unwritten = bool(len(chunk)) and int(stored.offsets[chunk].min()) < 0
        if unwritten and stored.fill is None:
            raise DataError(
                f"{self.path}: {stored.name} has unwritten chunks and no fill value for them",
                hint="the file is incomplete; generate or fetch the file again",
            )
        if (
            not unwritten
            and not stored.filters
            and (not len(lengths) or int(lengths.min()) >= min(_LEAST_PIECE, self._chunk_row_bytes))
        ):
            return Extents(stored.offsets[chunk] + source, lengths, to)
        order = np.argsort(chunk, kind="stable")
        needed, position = np.unique(chunk[order], return_inverse=True)
        return Chunks(
            np.maximum(stored.offsets[needed], 0), stored.sizes[needed], stored.skipped[needed], self._chunk_bytes,
            stored.filters, stored.itemsize, position, source[order], lengths[order], to[order],
            stored.fill if unwritten else None,
        )  # fmt: skip

    def _by_chunk(self, first: Ints, count: Ints, into: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Plans reads of whole rows: one fragment for each chunk that a sample touches."""
        length = self._stored.chunk[0]
        low = first // length
        touched = np.where(count > 0, (first + count - 1) // length - low + 1, 0)
        number = counted(touched)
        chunk = np.repeat(low, touched) + number
        begin = np.maximum(chunk * length, np.repeat(first, touched))
        end = np.minimum((chunk + 1) * length, np.repeat(first + count, touched))
        row = self._row_bytes
        to = np.repeat(into, touched) + (begin - np.repeat(first, touched)) * row
        return chunk, (begin - chunk * length) * row, (end - begin) * row, to

    def _by_row(self, first: Ints, count: Ints, into: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Plans reads of several runs of each row."""
        number = counted(count)
        rows = np.repeat(first, count) + number
        into = np.repeat(into, count) + number * self._row_bytes
        length, runs = self._stored.chunk[0], self._runs
        chunk = (rows // length * self._chunks_of_row)[:, None] + runs.chunk
        source = (rows % length * self._chunk_row_bytes)[:, None] + runs.source
        to = into[:, None] + runs.to
        return chunk.reshape(-1), source.reshape(-1), np.tile(runs.lengths, len(rows)), to.reshape(-1)
