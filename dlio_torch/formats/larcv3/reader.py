"""Reader of larcv3 files, event by event, with the library calls of larcv3's IOManager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.file import (
    METADATA_CACHE_LIMITS,
    open_file,
    open_with_cache,
    reading,
    require,
    set_metadata_cache,
)
from dlio_torch.formats.hdf5.layout import array_layout
from dlio_torch.formats.hdf5.slab import Slab
from dlio_torch.formats.larcv3.events import META, VOXEL_EXTENTS
from dlio_torch.formats.larcv3.layout import GatheredRows, row_extents
from dlio_torch.formats.larcv3.options import Larcv3Config
from dlio_torch.formats.larcv3.size_fit import VOXEL

EVENT_ID = np.dtype([("run", "<i8"), ("subrun", "<i8"), ("event", "<i8")])
EXTENTS = np.dtype({"names": ["first", "N"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16})
EVENTS = "Events/event_id"
_OTHER_LAYOUT = "replace the file by a larcv3 file of sparse 2-D images"
_TRIED_CHUNKS = 1000
COLD_CACHE_BYTES = 16 * 1024
"""Metadata cache in bytes for the first ``cold_events`` events: room for the nodes that lead to one array's chunks."""


def group_of(producer: str) -> str:
    """Path of a producer's HDF5 group."""
    return f"Data/{producer}_group"


def require_events(file: h5py.File, path: Path) -> h5py.Dataset:
    """Returns the table of events, which has one row per event."""
    return require(file, EVENTS, path, EVENT_ID, hint=_OTHER_LAYOUT)


@dataclass(frozen=True)
class _Group:
    name: str
    extents: Slab
    voxel_extents: Slab
    image_meta: Slab
    voxels: Slab


class Larcv3Reader(Reader):
    """Reader of one open file; every array stays open with its own chunk cache.

    Args:
        path: the file.
        options: producers to read, and sizes of the caches.

    Raises:
        DataError: the file cannot be opened, or has another layout; names what does not fit.
    """

    num_samples: int

    def __init__(self, path: Path, options: Larcv3Config) -> None:
        self._path = path
        self._options = options
        # Until so many events were read, the index of a file that is large for its cache is read again and again.
        self._cold_events = options.cold_events if options.metadata_cache_bytes else 0
        cache = min(options.metadata_cache_bytes, COLD_CACHE_BYTES if self._cold_events else METADATA_CACHE_LIMITS[1])
        self._file = open_file(path, options.chunk_cache_bytes, cache)
        with reading(self._file, path):
            self._events = Slab(self._table(require_events(self._file, path)), path)
            self.num_samples = self._events.rows
            self._groups = [self._open_group(producer.name) for producer in options.producers]

    def _open_group(self, producer: str) -> _Group:
        group = group_of(producer)
        types = {"extents": EXTENTS, "voxel_extents": VOXEL_EXTENTS, "image_meta": META, "voxels": VOXEL}
        slabs = {}
        for name, dtype in types.items():
            array = require(self._file, f"{group}/{name}", self._path, dtype, hint=_OTHER_LAYOUT)
            slabs[name] = Slab(array if name == "voxels" else self._table(array), self._path)
        if slabs["extents"].rows != self.num_samples:
            raise DataError(
                f"{self._path}: {group}/extents has {slabs['extents'].rows} rows, but the file has "
                f"{self.num_samples} events",
                hint="the file is incomplete; generate or fetch the file again",
            )
        return _Group(producer, **slabs)

    def _table(self, array: h5py.Dataset) -> h5py.Dataset:
        """Opens a small table, with its own chunk cache if ``table_cache_chunks`` is set."""
        if not self._options.table_cache_chunks or not array.chunks:
            return array
        name, chunk_bytes = array.name, array.chunks[0] * array.dtype.itemsize
        array.id.close()  # an array that is open keeps the cache that it was opened with
        return open_with_cache(self._file, name, self._options.table_cache_chunks * chunk_bytes)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for i in range(count):
            self._read_event(first + i, buffer, position + i)
            if self._cold_events:
                self._cold_events -= 1
                if not self._cold_events:
                    set_metadata_cache(self._file, self._options.metadata_cache_bytes)

    def _read_event(self, event: int, buffer: BatchBuffer, position: int) -> None:
        self._events.read_into(event, buffer.fixed["event_id"][position : position + 1])
        for group in self._groups:
            entry = group.extents.read(event, 1)[0]
            first, images = int(entry["first"]), int(entry["N"])
            extents = group.voxel_extents.read(first, images)
            buffer.put(f"{group.name}/voxel_extents", position, extents)
            buffer.put(f"{group.name}/image_meta", position, group.image_meta.read(first, images))
            lengths = extents["N"].tolist()
            voxels = group.voxels.empty(sum(lengths))
            end = 0
            for start, length in zip(extents["first"].tolist(), lengths, strict=True):
                group.voxels.read_into(start, voxels[end : end + length])
                end += length
            buffer.put(f"{group.name}/voxels", position, voxels)

    def describe(self) -> dict[str, Any]:
        """Figures of the layout; also checks that the last event lies within the tables.

        Raises:
            DataError: it does not.
        """
        details: dict[str, Any] = {"events": self.num_samples}
        with reading(self._file, self._path):
            for group in self._groups:
                if self.num_samples:
                    self._check_last(group)
                details[group.name] = _describe_voxels(self._file[f"{group_of(group.name)}/voxels"])
        return details

    def layouts(self) -> dict[str, ArrayLayout]:
        """The layout of each array; reads the tables of extents.

        Raises:
            DataError: the file is damaged, or stored in a way that only its library reads.
        """
        with reading(self._file, self._path):
            layouts: dict[str, ArrayLayout] = {"event_id": array_layout(self._file[EVENTS], self._path)}
            for group in self._groups:
                arrays = self._file[group_of(group.name)]
                images = row_extents(group.extents.read(0, self.num_samples))
                voxels = row_extents(group.voxel_extents.read(0, group.voxel_extents.rows))
                for name in ("image_meta", "voxel_extents"):
                    layouts[f"{group.name}/{name}"] = array_layout(arrays[name], self._path, images)
                table = layouts[f"{group.name}/voxel_extents"]
                layouts[f"{group.name}/voxels"] = GatheredRows(arrays["voxels"], self._path, images, voxels, table)
            return layouts

    def _check_last(self, group: _Group) -> None:
        event = group.extents.read(self.num_samples - 1, 1)[0]
        first, images = int(event["first"]), int(event["N"])
        group.image_meta.check(first, images)
        for image in group.voxel_extents.read(first, images):
            group.voxels.check(int(image["first"]), int(image["N"]))

    def __enter__(self) -> Larcv3Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


def _describe_voxels(array: h5py.Dataset) -> dict[str, Any]:
    """Chunk length in voxels, and mean and spread of the sizes of up to 1,000 full stored chunks."""
    voxels, rows = array.shape[0], array.chunks[0] if array.chunks else None
    sizes = []
    if rows is not None:
        chunks = voxels // rows
        # By coordinate, which descends the B-tree once; by number, the library walks through all of it.
        tried = np.unique(np.linspace(0, max(0, chunks - 1), min(chunks, _TRIED_CHUNKS)).astype(np.int64)).tolist()
        sizes = [array.id.get_chunk_info_by_coord((chunk * rows,)).size for chunk in tried]
    return {
        "voxels": voxels,
        "chunk_rows": rows,
        "stored_chunk_mean_bytes": round(float(np.mean(sizes)), 1) if sizes else None,
        "stored_chunk_stdev_bytes": round(float(np.std(sizes)), 1) if sizes else None,
    }
