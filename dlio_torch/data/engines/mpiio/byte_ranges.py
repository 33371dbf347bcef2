"""Reading of samples that are contiguous byte ranges, by ``MPI.File``."""

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
from dlio_torch.formats.core.layout import Extents, FileLayout, Ints, join_extents
from dlio_torch.native.memory import address_of
from dlio_torch.native.swapping import open_swapper

_MOST = 2**30  # bytes of a block of a datatype: counts of MPI before its version 4 are 32-bit
_NOTHING = Extents(*(np.zeros(0, np.int64) for _ in range(3)))


class FlatFile:
    """File of the data set, opened collectively by all ranks of a meeting.

    The file's own tables (headers, an index) are read by each rank through POSIX, the samples by MPI-IO.

    Args:
        fmt: knows where samples lie.
        path: the file.
        specs: arrays of a sample.
        meeting: who reads.

    Attributes:
        layout: where the samples lie.

    Raises:
        DataError: it is missing or damaged, or its samples are not extents of bytes.
    """

    def __init__(self, fmt: Format, path: Path, specs: Sequence[ArraySpec], meeting: Meeting) -> None:
        self.layout: FileLayout = fmt.layout(path)
        for descriptor in self.layout.descriptors.values():
            os.close(descriptor)
        self._path = path
        self._specs = specs
        self._meeting = meeting
        if self.layout.records is not None:
            raise _no_extents(path)
        # In the order of arrays, which is that of calls on every rank.
        paths = dict.fromkeys(self.layout.arrays[spec.name].path for spec in specs)
        self._files = {place: _Opened(place, meeting) for place in paths}

    def read(self, rows: Ints, into: Sequence[Ints], memory: Memory) -> int:
        """Read samples by one call per file; every rank must make the call, even if it needs no sample.

        Args:
            rows: positions in the file; int64.
            into: of each array, the first byte of each sample in ``memory``.
            memory: of the batch.

        Returns:
            Bytes that were asked for.

        Raises:
            DataError: the file does not hold them, or is damaged.
        """
        requested = 0
        for path, file in self._files.items():
            extents_of_file: list[Extents] = []
            for spec, targets in zip(self._specs, into, strict=True):
                array = self.layout.arrays[spec.name]
                if array.path == path and len(rows):
                    extents = array.plan(rows, targets)
                    if not isinstance(extents, Extents):
                        raise _no_extents(self._path)
                    extents_of_file.append(extents)
            requested += file.read(join_extents(extents_of_file) if extents_of_file else _NOTHING, memory)
        return requested

    def close(self) -> None:
        """Close the file collectively with the other ranks."""
        for file in self._files.values():
            file.close()


class _Opened:
    """Open MPI file of one path."""

    def __init__(self, path: Path, meeting: Meeting) -> None:
        self._path = path
        self._meeting = meeting
        self._file: Any = meeting.file(path)
        self._size = self._file.Get_size()
        self._viewed = False

    def read(self, extents: Extents, memory: Memory) -> int:
        kept = np.flatnonzero(extents.lengths)
        order = kept[np.argsort(extents.offsets[kept], kind="stable")]
        extents = extents.taken(order)
        ends = extents.offsets + extents.lengths
        if len(ends) and (int(ends[-1]) > self._size or int(extents.offsets[0]) < 0):
            # MPI-IO need not tell that a file ended before what was asked for.
            raise DataError(
                f"{self._path} has {self._size} bytes, but {int(extents.lengths[-1])} bytes from byte "
                f"{int(extents.offsets[-1])} on were requested",
                hint="the file is damaged or incomplete; remove the file and generate the data again",
            )
        first = np.ones(len(ends), bool)  # of a sample that is in the batch twice, the first
        first[1:] = extents.offsets[1:] != extents.offsets[:-1]
        distinct = extents.taken(first)
        if (distinct.offsets[1:] < (distinct.offsets + distinct.lengths)[:-1]).any():
            raise DataError(
                f"{self._path}: samples overlap in the file, so that one MPI-IO call cannot read them",
                hint="set access.io=posix",
            )
        size = int(distinct.lengths.sum())
        with self._meeting.watch(f"a {self._meeting.figures.io} read"), refusing(self._path):
            self._call(_joined(distinct), memory)
        self._meeting.figures.count(size)
        source = np.cumsum(first) - 1
        for again in np.flatnonzero(~first).tolist():
            begin, to, length = int(distinct.to[source[again]]), int(extents.to[again]), int(extents.lengths[again])
            memory[to : to + length] = memory[begin : begin + length]
        if extents.turned is not None:
            open_swapper().swap(extents.to + address_of(memory), extents.lengths, extents.turned)
        return size

    def _call(self, extents: Extents, memory: Memory) -> None:
        file, collective = self._file, self._meeting.collective
        read = file.Read_at_all if collective else file.Read_at
        if len(extents.offsets) == 1 and not collective and not self._viewed:
            offset, to, length = int(extents.offsets[0]), int(extents.to[0]), int(extents.lengths[0])
            read(offset, [memory[to : to + length], length, MPI.BYTE])
            return
        if not len(extents.offsets):
            if collective:  # the others may ask for something
                file.Set_view(0, MPI.BYTE, MPI.BYTE)
                read(0, [memory[:0], 0, MPI.BYTE])
            return
        self._viewed = True
        lengths = extents.lengths.tolist()
        in_file = MPI.BYTE.Create_hindexed(lengths, extents.offsets.tolist()).Commit()
        in_memory = MPI.BYTE.Create_hindexed(lengths, extents.to.tolist()).Commit()
        try:
            file.Set_view(0, MPI.BYTE, in_file)
            read(0, [memory, 1, in_memory])
        finally:
            in_file.Free()
            in_memory.Free()

    def close(self) -> None:
        self._file.Close()


def _joined(extents: Extents) -> Extents:
    """Joins extents that are adjacent in file and memory, and splits extents that are too long for an MPI count."""
    if not len(extents.offsets):
        return extents
    gap = (np.diff(extents.offsets) != extents.lengths[:-1]) | (np.diff(extents.to) != extents.lengths[:-1])
    begins = np.concatenate([[0], np.flatnonzero(gap) + 1])
    offsets, to, lengths = extents.offsets[begins], extents.to[begins], np.add.reduceat(extents.lengths, begins)
    if int(lengths.max()) <= _MOST:
        return Extents(offsets, lengths, to)
    parts = -(-lengths // _MOST)
    which = np.repeat(np.arange(len(parts)), parts)
    skip = (np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)) * _MOST
    return Extents(offsets[which] + skip, np.minimum(lengths[which] - skip, _MOST), to[which] + skip)


def _no_extents(path: Path) -> DataError:
    return DataError(
        f"{path}: MPI-IO can read only samples that are contiguous byte ranges, but this file is compressed, chunked "
        "or framed",
        hint="set access.io=posix, store the samples uncompressed, or set dataset.format=hdf5, which reads chunks "
        "by parallel HDF5",
    )
