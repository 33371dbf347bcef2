"""File layouts: the byte extents of each sample in a file, as integer arrays.

A format that can tell gives a :class:`FileLayout` for each of its files.  Nothing here reads samples: an engine
plans a whole batch by NumPy, and reads all of its extents in one native call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError

Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.signedinteger[Any]]


@dataclass(slots=True)  # not frozen, which takes twice as long to create
class Extents:
    """Extents of a file that are copied to memory unchanged; int64 arrays of shape ``(extents,)``.

    Attributes:
        offsets: first byte in the file.
        lengths: bytes.
        to: first byte in the memory of the batch.
        turned: bytes of an element, where elements are stored in the other byte order and are turned when they have
            been read; 1: as they are.  ``None``: all of them are as they are.
    """

    offsets: Ints
    lengths: Ints
    to: Ints
    turned: Ints | None = None

    def taken(self, which: slice | npt.NDArray[np.integer[Any]]) -> Extents:
        """The extents at these positions."""
        turned = None if self.turned is None else self.turned[which]
        return Extents(self.offsets[which], self.lengths[which], self.to[which], turned)


def stable_order(keys: Ints) -> Ints:
    """Positions that sort numbers from 0 to 2**31, equal ones in their order; several times as fast as NumPy's own."""
    return np.argsort((keys << 32) | np.arange(len(keys)))


def join_extents(extents: Sequence[Extents]) -> Extents:
    """Concatenates a non-empty sequence of extents."""
    if len(extents) == 1:
        return extents[0]
    names = ("offsets", "lengths", "to")
    offsets, lengths, to = (np.concatenate([getattr(part, name) for part in extents]) for name in names)
    if all(p.turned is None for p in extents):
        return Extents(offsets, lengths, to)
    turned = [np.ones(len(p.offsets), np.int64) if p.turned is None else p.turned for p in extents]
    return Extents(offsets, lengths, to, np.concatenate(turned))


@dataclass(frozen=True)
class Chunks:
    """Chunks of a file that are read whole, decoded, and copied to memory in fragments.

    Attributes:
        offsets: first byte of each chunk that is needed, in the file.
        sizes: stored bytes of each; 0: it was never written.
        skipped: bit ``i``: the chunk was stored without filter ``i``.
        size: bytes of a decoded chunk.
        filters: names of the filters, in the order of writing; none: chunks are stored as they are.
        itemsize: bytes of an element.
        chunk: of each fragment, the position of its chunk in ``offsets``; ascending.
        source: of each fragment, its first byte in the decoded chunk.
        lengths: bytes of each fragment.
        to: of each fragment, its first byte in the memory of the batch.
        fill: an element of the chunks that were never written; ``None``: there are none.
    """

    offsets: Ints
    sizes: Ints
    skipped: Ints
    size: int
    filters: tuple[str, ...]
    itemsize: int
    chunk: Ints
    source: Ints
    lengths: Ints
    to: Ints
    fill: bytes | None = None


@dataclass(frozen=True)
class Copies:
    """Extents that are already in memory; int64 arrays of shape ``(extents,)``.

    Attributes:
        sources: addresses, valid as long as the layout that gave them.
        lengths: bytes.
        to: first byte in the memory of the batch.
    """

    sources: Ints
    lengths: Ints
    to: Ints


@dataclass(frozen=True)
class Records:
    """Records of a file, each with all arrays of one sample; reading a record separates its arrays.

    Attributes:
        offsets: first byte of each record; int64 of ``(records,)``, ascending.
        spans: bytes of each.
        to: first byte of each array in the memory of the batch; int64 of ``(records, arrays)``.
        sizes: bytes that each array takes there; the same shape.
        layout: knows how to read them.
    """

    offsets: Ints
    spans: Ints
    to: Ints
    sizes: Ints
    layout: RecordLayout


class RecordLayout(ABC):
    """Layout of a file of records, each of which holds all arrays of one sample.

    Attributes:
        path: the file.
        in_memory: the stored records are in memory; reading them is decoding alone.
    """

    path: Path
    in_memory: bool = False

    @abstractmethod
    def sizes(self, rows: Ints) -> Ints:
        """Bytes in memory of each array of the records at ``rows``; int64 of ``(rows, arrays)``.

        Raises:
            DataError: the file is damaged.
        """

    @abstractmethod
    def plan(self, rows: Ints, into: Ints) -> Records:
        """The reads that give the records at ``rows``.

        Args:
            rows: positions in the file; int64.
            into: first byte of each array of each record in the memory of the batch; ``(rows, arrays)``.
        """

    @abstractmethod
    def read(self, records: Records, low: int, high: int, base: int, request: int) -> None:
        """Read records ``low`` to ``high`` of a plan for this file.

        Args:
            records: the plan.
            low: first record.
            high: the one behind the last.
            base: address of the memory of the batch.
            request: most bytes of a request.

        Raises:
            DataError: a record is damaged, missing, or holds something else.
        """

    def native_file(self) -> Ints | None:
        """The file as ``struct record_file`` of ``core_tasks.h``, which the layout keeps.

        ``None`` if the read core cannot take its records apart.
        """
        return None


class ArrayLayout(ABC):
    """Layout of one array: the bytes of the file that hold each sample.

    Attributes:
        path: the file.
        in_memory: the samples are in memory, and the file need not stay open.
    """

    path: Path
    in_memory: bool = False

    @abstractmethod
    def sizes(self, rows: Ints) -> Ints:
        """Bytes in memory of the samples at ``rows``; int64 of ``(rows,)``.

        Raises:
            DataError: the file's own tables are damaged.
        """

    @abstractmethod
    def plan(self, rows: Ints, into: Ints) -> Extents | Chunks | Copies:
        """The reads that give the samples at ``rows``.

        Args:
            rows: positions in the file; int64.
            into: first byte of each sample in the memory of the batch.

        Raises:
            DataError: the file does not hold them.
        """


@dataclass(frozen=True)
class FileLayout:
    """Layout of a file: the bytes that hold each sample.

    Attributes:
        num_samples: samples in the file; ``None`` if only reading it all would tell.
        arrays: layout of each array of a sample; empty where there are records.
        records: the samples, where each is a record; else ``None``.
        descriptors: files that are open already; the receiver of this object closes them.
        once: it is of no use behind the next reading of its samples, as an application that opens a file for each.
        read_bytes: bytes that were read into memory with it.
    """

    num_samples: int | None
    arrays: Mapping[str, ArrayLayout]
    records: RecordLayout | None = None
    descriptors: Mapping[Path, int] = field(default_factory=dict)
    once: bool = False
    read_bytes: int = 0


class StridedLayout(ArrayLayout):
    """Layout of samples of equal size at equal distances.

    Args:
        path: the file.
        first: first byte of the first sample.
        size: bytes of a sample, and the distance to the next.
        parts: extents of a sample that are read (byte in the sample, bytes, byte in memory); ``None``: all of it.
    """

    def __init__(self, path: Path, first: int, size: int, parts: Extents | None = None) -> None:
        self.path = path
        self._first = first
        self._stride = size
        self._parts = parts
        self._size = size if parts is None else int(parts.lengths.sum())

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), self._size, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Extents:
        offsets = self._first + rows * self._stride
        if self._parts is None:
            return Extents(offsets, self.sizes(rows), into)
        return Extents(
            (offsets[:, None] + self._parts.offsets).reshape(-1),
            np.tile(self._parts.lengths, len(rows)),
            (into[:, None] + self._parts.to).reshape(-1),
            None if self._parts.turned is None else np.tile(self._parts.turned, len(rows)),
        )


class Listed(ArrayLayout):
    """Layout of samples at listed offsets.

    Args:
        path: the file.
        starts: first byte of each sample.
        sizes: bytes of each sample.
        row_bytes: a sample is a whole number of rows of so many bytes.
        variable: any number of rows; else one.
        limit: bytes of the file.
    """

    def __init__(
        self, path: Path, starts: AnyInts, sizes: AnyInts, row_bytes: int, *, variable: bool, limit: int
    ) -> None:
        self.path = path
        self._starts, self._sizes = starts, sizes
        self._row_bytes = row_bytes
        self._variable = variable
        self._limit = limit

    def sizes(self, rows: Ints) -> Ints:
        starts, sizes = self._starts[rows], self._sizes[rows].astype(np.int64)
        # Compared so that no sum can overflow: a damaged table says anything.
        wrong = (starts < 0) | (sizes < 0) | (sizes > self._limit) | (starts > self._limit - sizes)
        wrong |= sizes % self._row_bytes != 0 if self._variable else sizes != self._row_bytes
        if wrong.any():
            bad = int(wrong.argmax())
            expected = f"rows have {self._row_bytes} bytes" if self._variable else f"expected {self._row_bytes}"
            raise DataError(
                f"{self.path}: sample {int(rows[bad])} has {int(sizes[bad])} bytes from byte {int(starts[bad])} on, "
                f"{expected}; the file has {self._limit} bytes",
                hint="replace the damaged file, or correct dataset.fields to describe this data set",
            )
        return sizes

    def plan(self, rows: Ints, into: Ints) -> Extents:
        return Extents(self._starts[rows].astype(np.int64), self.sizes(rows), into)


def by_lengths(path: Path, first: int, lengths: Ints, row_bytes: int, limit: int) -> Listed:
    """Layout of adjacent variable-length samples of ``lengths`` rows each, from byte ``first`` on."""
    sizes = lengths * row_bytes
    return Listed(path, first + np.cumsum(sizes) - sizes, sizes, row_bytes, variable=True, limit=limit)
