"""Samples that are stretches of bytes, read by ``MPI.File``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.data.engines.mpiio.reading_ranks import Meeting, refusing
from dlio_torch.dist.mpiworld import MPI
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Ints, NativeFile, Pieces, together
from dlio_torch.native.memory import address_of
from dlio_torch.native.swapping import open_swapper

_MOST = 2**30  # bytes of a block of a datatype: counts of MPI before its version 4 are 32-bit
_NOTHING = Pieces(*(np.zeros(0, np.int64) for _ in range(3)))


class FlatFile:
    """A file of the data set, opened by all ranks of a meeting.

    The file's own tables (headers, an index) are read by each rank through POSIX, the samples by MPI-IO.

    Args:
        fmt: knows where samples lie.
        path: the file.
        specs: arrays of a sample.
        meeting: who reads.

    Attributes:
        native: where the samples lie.

    Raises:
        DataError: it is missing or damaged, or its samples are no stretches of bytes.
    """

    def __init__(self, fmt: Format, path: Path, specs: Sequence[ArraySpec], meeting: Meeting) -> None:
        self.native: NativeFile = fmt.places(path)
        for descriptor in self.native.descriptors.values():
            os.close(descriptor)
        self._path = path
        self._specs = specs
        self._meeting = meeting
        if self.native.records is not None:
            raise _no_stretches(path)
        # In the order of arrays, which is that of calls on every rank.
        paths = dict.fromkeys(self.native.arrays[spec.name].path for spec in specs)
        self._files = {place: _Opened(place, meeting) for place in paths}

    def read(self, rows: Ints, into: Sequence[Ints], memory: Memory) -> int:
        """Read samples, by one call for each file that they lie in, whether this rank asks for any or not.

        Args:
            rows: positions in the file; int64.
            into: of each array, the first byte of each sample in ``memory``.
            memory: of the batch.

        Returns:
            Bytes that were asked for.

        Raises:
            DataError: the file does not hold them, or is damaged.
        """
        asked = 0
        for path, file in self._files.items():
            found: list[Pieces] = []
            for spec, where in zip(self._specs, into, strict=True):
                places = self.native.arrays[spec.name]
                if places.path == path and len(rows):
                    pieces = places.plan(rows, where)
                    if not isinstance(pieces, Pieces):
                        raise _no_stretches(self._path)
                    found.append(pieces)
            asked += file.read(together(found) if found else _NOTHING, memory)
        return asked

    def close(self) -> None:
        """Close it, together with the other ranks."""
        for file in self._files.values():
            file.close()


class _Opened:
    """One of its files, open."""

    def __init__(self, path: Path, meeting: Meeting) -> None:
        self._path = path
        self._meeting = meeting
        self._file: Any = meeting.file(path)
        self._size = self._file.Get_size()
        self._viewed = False

    def read(self, pieces: Pieces, memory: Memory) -> int:
        kept = np.flatnonzero(pieces.lengths)
        order = kept[np.argsort(pieces.offsets[kept], kind="stable")]
        pieces = pieces.taken(order)
        ends = pieces.offsets + pieces.lengths
        if len(ends) and (int(ends[-1]) > self._size or int(pieces.offsets[0]) < 0):
            # MPI-IO need not tell that a file ended before what was asked for.
            raise DataError(
                f"{self._path} has {self._size} bytes, asked for {int(pieces.lengths[-1])} from byte "
                f"{int(pieces.offsets[-1])} on",
                hint="the file is damaged or incomplete; remove it and generate again",
            )
        first = np.ones(len(ends), bool)  # of a sample that is in the batch twice, the first
        first[1:] = pieces.offsets[1:] != pieces.offsets[:-1]
        distinct = pieces.taken(first)
        if (distinct.offsets[1:] < (distinct.offsets + distinct.lengths)[:-1]).any():
            raise DataError(f"{self._path}: samples overlap", hint="set access.io=posix")
        size = int(distinct.lengths.sum())
        with self._meeting.watch(f"a {self._meeting.figures.io} read"), refusing(self._path):
            self._call(_joined(distinct), memory)
        self._meeting.figures.count(size)
        source = np.cumsum(first) - 1
        for again in np.flatnonzero(~first).tolist():
            begin, to, length = int(distinct.to[source[again]]), int(pieces.to[again]), int(pieces.lengths[again])
            memory[to : to + length] = memory[begin : begin + length]
        if pieces.turned is not None:
            open_swapper().swap(pieces.to + address_of(memory), pieces.lengths, pieces.turned)
        return size

    def _call(self, pieces: Pieces, memory: Memory) -> None:
        file, collective = self._file, self._meeting.collective
        read = file.Read_at_all if collective else file.Read_at
        if len(pieces.offsets) == 1 and not collective and not self._viewed:
            offset, to, length = int(pieces.offsets[0]), int(pieces.to[0]), int(pieces.lengths[0])
            read(offset, [memory[to : to + length], length, MPI.BYTE])
            return
        if not len(pieces.offsets):
            if collective:  # the others may ask for something
                file.Set_view(0, MPI.BYTE, MPI.BYTE)
                read(0, [memory[:0], 0, MPI.BYTE])
            return
        self._viewed = True
        lengths = pieces.lengths.tolist()
        in_file = MPI.BYTE.Create_hindexed(lengths, pieces.offsets.tolist()).Commit()
        in_memory = MPI.BYTE.Create_hindexed(lengths, pieces.to.tolist()).Commit()
        try:
            file.Set_view(0, MPI.BYTE, in_file)
            read(0, [memory, 1, in_memory])
        finally:
            in_file.Free()
            in_memory.Free()

    def close(self) -> None:
        self._file.Close()


def _joined(pieces: Pieces) -> Pieces:
    """Neighbours in the file that are neighbours in memory as one piece; those that are too long for a count cut."""
    if not len(pieces.offsets):
        return pieces
    gap = (np.diff(pieces.offsets) != pieces.lengths[:-1]) | (np.diff(pieces.to) != pieces.lengths[:-1])
    begins = np.concatenate([[0], np.flatnonzero(gap) + 1])
    offsets, to, lengths = pieces.offsets[begins], pieces.to[begins], np.add.reduceat(pieces.lengths, begins)
    if int(lengths.max()) <= _MOST:
        return Pieces(offsets, lengths, to)
    parts = -(-lengths // _MOST)
    which = np.repeat(np.arange(len(parts)), parts)
    skip = (np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)) * _MOST
    return Pieces(offsets[which] + skip, np.minimum(lengths[which] - skip, _MOST), to[which] + skip)


def _no_stretches(path: Path) -> DataError:
    return DataError(
        f"{path}: its samples are no stretches of bytes (compressed, chunked or framed), which MPI-IO alone could read",
        hint="set access.io=posix, or store them uncompressed; dataset.format=hdf5 reads chunks by parallel HDF5",
    )
