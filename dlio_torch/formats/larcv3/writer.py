"""Writer of larcv3 files whose chunks have the same order as in the real training file.

That file was merged from smaller ones of some 300 events each.  Where the chunks of an event lie was read
off the published trace of the application; one unit of 300 events behind the other, each has::

    extents of all producers, image_meta of all but the last one
    groups that the application does not read
    voxel_extents of the first producer, of the events of the next unit
    voxels of the first producer
    voxel_extents of the next producer, its voxels; and so on

The chunks of event_id and of the last producer's image_meta lie far ahead of their events, in space that
merging had freed.  Here event_id lies at the head, and in the first unit, apart from each other between groups
that are not read: the first chunk and the index of each table, then image_meta of the last producer.  So a
reader that goes from table to table jumps forth and back by megabytes, and image chunks lie 45 to 105 MB
behind the label chunks of their event.
"""

from __future__ import annotations

import zlib
from concurrent.futures import Executor
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import concatenate
from dlio_torch.formats.larcv3.events import VOXEL_EXTENTS, EventContent
from dlio_torch.formats.larcv3.options import Larcv3Config
from dlio_torch.formats.larcv3.reader import EVENT_ID, EVENTS, EXTENTS, group_of
from dlio_torch.formats.larcv3.size_fit import VOXEL

UNREAD = "Data/unread_group/bytes"
_UNREAD_CHUNK = 64 * 1024
_TASK_BYTES = 256 << 10  # chunks that one thread deflates at a time
_EVENTS_IN_MEMORY = 64  # about 60 MB of voxels of one producer
_UNREAD_STREAM = 0xC2  # random stream of a file, of the sample that it begins with


def event_ids(count: int) -> npt.NDArray[Any]:
    """Rows of Events/event_id; all numbers are -1 as in the real file."""
    ids = np.empty(count, EVENT_ID)
    for name in EVENT_ID.names or ():
        ids[name] = -1
    return ids


_Bytes = npt.NDArray[np.uint8]


class Larcv3Writer:
    """Writer of one larcv3 file.

    Args:
        file: empty, open for writing.
        options: layout.
        content: makes the events.
        first_sample: number of the first event.
        num_samples: events.
        pool: makes and deflates them.
    """

    def __init__(
        self,
        file: h5py.File,
        options: Larcv3Config,
        content: EventContent,
        first_sample: int,
        num_samples: int,
        pool: Executor,
    ) -> None:
        self._file, self._options, self._content = file, options, content
        self._first, self._events, self._pool = first_sample, num_samples, pool
        images, chunk = options.images, options.table_chunk
        counts = content.counts(first_sample, num_samples)
        self._ids = self._table(EVENTS, event_ids(num_samples), 1, chunk)
        self._extents, self._voxel_extents, self._meta, self._voxels = [], [], [], []
        samples = range(first_sample, first_sample + num_samples)
        for number, producer in enumerate(options.producers):
            group = group_of(producer.name)
            extents = _extents(num_samples, images)
            meta = concatenate([content.meta(sample, number) for sample in samples])
            self._extents.append(self._table(f"{group}/extents", extents, 1, options.extents_chunk))
            self._voxel_extents.append(self._table(f"{group}/voxel_extents", _voxel_extents(counts), images, chunk))
            self._meta.append(self._table(f"{group}/image_meta", meta, images, chunk))
            self._voxels.append(
                _Voxels(self._create(f"{group}/voxels", int(counts.sum()), VOXEL, options.voxels_chunk))
            )
        self._unread = _Unread(file, options.unread_bytes, num_samples, content.seed, first_sample)

    def write(self) -> None:
        """Write all chunks in the order of their offsets in the file."""
        unit = self._options.merge_events
        self._ids.write(self._events)
        for low in range(0, self._events, unit):
            high = min(low + unit, self._events)
            if low == 0:
                self._unread.write(high // 4)
                for table in (*self._extents, *self._voxel_extents, *self._meta):
                    table.write(1)
                self._unread.write(high // 2)
                self._meta[-1].write(self._events)
                self._voxel_extents[0].write(high)
                self._unread.write(3 * high // 4)
            for table in (*self._extents, *self._meta):
                table.write(high)
            self._unread.write(high)
            self._voxel_extents[0].write(high + unit)
            for number, table in enumerate(self._voxel_extents):
                table.write(high)
                self._write_voxels(number, low, high)
        for voxels in self._voxels:
            voxels.finish()

    def _write_voxels(self, producer: int, low: int, high: int) -> None:
        for start in range(low, high, _EVENTS_IN_MEMORY):
            samples = range(self._first + start, self._first + min(start + _EVENTS_IN_MEMORY, high))
            voxels = self._pool.map(lambda sample: self._content.voxels(self._content.event(sample), producer), samples)
            self._voxels[producer].add(concatenate(list(voxels)), self._pool)

    def _create(self, name: str, rows: int, dtype: np.dtype[Any], chunk: int) -> _Chunks:
        level = self._options.compression_level
        array = self._file.create_dataset(
            name, (rows,), dtype, chunks=(chunk,), maxshape=(None,), compression="gzip", compression_opts=level
        )
        return _Chunks(array.id, dtype, chunk, level)

    def _table(self, name: str, rows: npt.NDArray[Any], rows_per_event: int, chunk: int) -> _Table:
        return _Table(self._create(name, len(rows), rows.dtype, chunk), rows, rows_per_event)


class _Chunks:
    """Writer of the chunks of one array, which are compressed first and then written directly.

    ``H5Dwrite_chunk`` allocates file space and index nodes in the order of the calls, as the
    library does for a program that writes the events one after another.
    """

    def __init__(self, array: h5py.h5d.DatasetID, dtype: np.dtype[Any], rows: int, level: int) -> None:
        self.rows = rows
        self.bytes = rows * dtype.itemsize
        self._array, self._level = array, level
        self._next = 0

    def deflate(self, raw: _Bytes) -> bytes:
        """Compresses a chunk; a partly filled chunk is padded first, as HDF5 does."""
        return zlib.compress(raw.tobytes().ljust(self.bytes, b"\0"), self._level)

    def deflate_all(self, raw: _Bytes) -> list[bytes]:
        """Compresses consecutive chunks."""
        return [self.deflate(raw[start : start + self.bytes]) for start in range(0, len(raw), self.bytes)]

    def write(self, stored: bytes) -> None:
        """Write the next chunk."""
        self._array.write_direct_chunk((self._next,), stored)
        self._next += self.rows


class _Table:
    """Writer of a small array whose content is known in advance."""

    def __init__(self, chunks: _Chunks, rows: npt.NDArray[Any], rows_per_event: int) -> None:
        # Bytes, for NumPy does not copy what lies between the members of a record.
        self._chunks, self._raw = chunks, rows.view(np.uint8)
        self._event_bytes = rows_per_event * rows.dtype.itemsize
        self._written = 0

    def write(self, events: int) -> None:
        """Write all unwritten chunks that hold a row of the first ``events`` events."""
        end = min(events * self._event_bytes, len(self._raw))
        while self._written < end:
            self._chunks.write(self._chunks.deflate(self._raw[self._written : self._written + self._chunks.bytes]))
            self._written += self._chunks.bytes


class _Voxels:
    """Writer of a producer's large voxel array, of which only a part is in memory at a time."""

    def __init__(self, chunks: _Chunks) -> None:
        self._chunks = chunks
        self._left: _Bytes = np.empty(0, np.uint8)

    def add(self, voxels: npt.NDArray[Any], pool: Executor) -> None:
        """Write all full chunks and keep the remaining voxels for the next call."""
        raw = np.concatenate([self._left, voxels.view(np.uint8)])
        size = self._chunks.bytes
        full = len(raw) // size * size
        task = max(1, _TASK_BYTES // size) * size  # handing over a chunk may take longer than deflating it
        for several in pool.map(
            self._chunks.deflate_all, [raw[start : min(start + task, full)] for start in range(0, full, task)]
        ):
            for stored in several:
                self._chunks.write(stored)
        self._left = raw[full:]

    def finish(self) -> None:
        """Write the last, partly filled chunk."""
        if len(self._left):
            self._chunks.write(self._chunks.deflate(self._left))


class _Unread:
    """Writer of random bytes that stand for the groups which the application does not read."""

    def __init__(self, file: h5py.File, event_bytes: int, events: int, seed: int, first: int) -> None:
        self._chunks = -(-event_bytes * events // _UNREAD_CHUNK)
        if self._chunks:
            shape, chunk = (self._chunks * _UNREAD_CHUNK,), (_UNREAD_CHUNK,)
            self._array = file.create_dataset(UNREAD, shape, np.uint8, chunks=chunk).id
        self._event_bytes = event_bytes
        self._generator = payload.rng(seed, first, _UNREAD_STREAM)
        self._written = 0

    def write(self, events: int) -> None:
        """Write the unwritten bytes of the first ``events`` events."""
        while self._written < min(-(-events * self._event_bytes // _UNREAD_CHUNK), self._chunks):
            self._array.write_direct_chunk((self._written * _UNREAD_CHUNK,), self._generator.bytes(_UNREAD_CHUNK))
            self._written += 1


def _extents(events: int, images: int) -> npt.NDArray[Any]:
    table = np.zeros(events, EXTENTS)
    table["first"], table["N"] = np.arange(events) * images, images
    return table


def _voxel_extents(counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    table = np.zeros(counts.size, VOXEL_EXTENTS)
    flat = counts.reshape(-1)
    table["first"] = np.concatenate([[0], np.cumsum(flat)[:-1]])
    table["N"], table["ID"] = flat, np.arange(counts.size) % counts.shape[1]
    return table
