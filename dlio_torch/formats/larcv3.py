"""larcv3's HDF5 layout of sparse 2-D images: the files of Cosmic Tagger.

Layout, from larcv3's EventSparseTensor.cxx and a real file (types, sizes, chunk lengths, filter)::

    Events/event_id                      {run, subrun, event i8}, one row an event
    Data/<producer>_group/extents        {first u8, N u4} in 16 bytes: the event's rows of voxel_extents
    Data/<producer>_group/voxel_extents  {first u8, N u4, ID u4}: an image's rows of voxels
    Data/<producer>_group/image_meta     72 bytes an image
    Data/<producer>_group/voxels         {id u8, value f4} in 16 bytes, all images one after another

Reading an event, as larcv3's IOManager does: event_id (1 row), then for each producer extents (1),
voxel_extents (as many as images), image_meta (likewise), and one hyperslab of voxels an image; all
arrays stay open, each with HDF5's chunk cache.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig, Larcv3Config
from dlio_torch.errors import ConfigError
from dlio_torch.formats.base import FileInfo, Format, Reader
from dlio_torch.formats.batch import ArraySpec, Sample, concatenate
from dlio_torch.formats.h5file import METADATA_CACHE_LIMITS, open_file, reading
from dlio_torch.formats.larcv3_content import META, VOXEL, VOXEL_EXTENTS, EventContent
from dlio_torch.formats.larcv3_reader import EVENT_ID, EVENTS, EXTENTS, Larcv3Reader, group_of, require_events
from dlio_torch.trace.spans import NULL, Recorder

_EVENTS_IN_MEMORY = 64  # about 60 MB of voxels of one producer


class Larcv3Format(Format):
    """Sparse images of ``dataset.larcv3.producers`` in larcv3 files."""

    name: ClassVar[str] = "larcv3"
    suffix: ClassVar[str] = ".h5"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.options: Larcv3Config = config.larcv3
        if not self.options.producers:
            raise ConfigError(
                "dataset.larcv3.producers is empty", hint="name at least one, as conf/dataset/larcv3.yaml does"
            )
        names = [producer.name for producer in self.options.producers]
        for name in names:
            if not name or "/" in name:
                raise ConfigError(
                    f"dataset.larcv3.producers: name={name!r} is no name of a group",
                    hint="for example sparse2d_sbndwire",
                )
            if names.count(name) > 1:
                raise ConfigError(
                    f"dataset.larcv3.producers names {name!r} twice", hint="give each producer its own name"
                )
        if len(self.options.image_shape) != 2 or min(self.options.image_shape) < 1:
            raise ConfigError(
                f"dataset.larcv3.image_shape={self.options.image_shape} is no shape of an image",
                hint="give two lengths, for example [2048, 1280]",
            )
        low, high = METADATA_CACHE_LIMITS
        if self.options.metadata_cache_bytes and not low <= self.options.metadata_cache_bytes <= high:
            raise ConfigError(
                f"dataset.larcv3.metadata_cache_bytes={self.options.metadata_cache_bytes} is no size that HDF5 takes",
                hint=f"set 0, or {low} to {high} bytes",
            )
        self.content = EventContent(self.options, seed)

    def specs(self) -> list[ArraySpec]:
        specs = [ArraySpec("event_id", EVENT_ID, ())]
        for producer in self.options.producers:
            specs.append(ArraySpec(f"{producer.name}/image_meta", META, (), variable=True))
            specs.append(ArraySpec(f"{producer.name}/voxel_extents", VOXEL_EXTENTS, (), variable=True))
            specs.append(ArraySpec(f"{producer.name}/voxels", VOXEL, (), variable=True))
        return specs

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        # These belong to reading: another value reads the same file.
        for key in ("fields", "chunk_cache_bytes", "table_cache_chunks", "metadata_cache_bytes", "opens"):
            options.pop(key, None)
        return options

    def expected(self, sample: int) -> Sample:
        event = self.content.event(sample)
        made: Sample = {"event_id": _event_ids(sample, 1)[0]}
        for number, producer in enumerate(self.options.producers):
            made[f"{producer.name}/image_meta"] = self.content.meta(self.options.images)
            made[f"{producer.name}/voxel_extents"] = self.content.voxel_extents(event)
            made[f"{producer.name}/voxels"] = self.content.voxels(event, number)
        return made

    def sample_bytes(self) -> float:
        images = len(self.options.producers) * self.options.images
        per_image = self.options.voxels_mean * VOXEL.itemsize + META.itemsize + VOXEL_EXTENTS.itemsize
        return EVENT_ID.itemsize + images * per_image

    def stored_bytes(self) -> float:
        # The published sizes are of chunks of 1,000 voxels.
        per_voxel = sum(producer.stored_chunk_mean for producer in self.options.producers) / 1000
        return self.options.images * self.options.voxels_mean * per_voxel

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            level, images = self.options.compression_level, self.options.images
            table = self.options.table_chunk
            ids = _create(file, EVENTS, num_samples, EVENT_ID, table, level)
            ids[:] = _event_ids(first_sample, num_samples)
            counts = self.content.counts(first_sample, num_samples)
            for producer in self.options.producers:
                group, rows = group_of(producer.name), num_samples * images
                extents = _create(file, f"{group}/extents", num_samples, EXTENTS, self.options.extents_chunk, level)
                extents[:] = _extents(num_samples, images)
                voxel_extents = _create(file, f"{group}/voxel_extents", rows, VOXEL_EXTENTS, table, level)
                voxel_extents[:] = _voxel_extents(counts)
                meta = _create(file, f"{group}/image_meta", rows, META, table, level)
                meta[:] = concatenate([self.content.meta(images)] * num_samples)
                _create(file, f"{group}/voxels", int(counts.sum()), VOXEL, self.options.voxels_chunk, level)
            self._write_voxels(file, first_sample, num_samples, pool)

    def _write_voxels(self, file: h5py.File, first_sample: int, events: int, pool: Executor) -> None:
        """All voxels of one producer after another, for ``merge_events`` events at a time.

        The real files were merged from smaller ones, table by table: in the published trace the image
        chunks of an event lie 65 to 95 MB behind its label chunks, which is about 260 events.
        """
        options = self.options
        writers = [
            _ChunkWriter(file[f"{group_of(producer.name)}/voxels"].id, options.voxels_chunk, options.compression_level)
            for producer in options.producers
        ]
        for low in range(0, events, options.merge_events):
            unit = range(first_sample + low, first_sample + min(low + options.merge_events, events))
            for number, writer in enumerate(writers):
                for start in range(0, len(unit), _EVENTS_IN_MEMORY):
                    made = pool.map(
                        lambda sample, number=number: self.content.voxels(self.content.event(sample), number),
                        unit[start : start + _EVENTS_IN_MEMORY],
                    )
                    writer.add(concatenate(list(made)), pool)
        for writer in writers:
            writer.finish()

    def parameters(self) -> dict[str, float]:
        return self.content.parameters()

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        self.content.use_parameters(parameters)

    def differences(self, sample: int, got: Sample) -> str | None:
        # voxel_extents point into the file; counted from the event's own first voxel they are the
        # same wherever the event lies.
        got = dict(got)
        for producer in self.options.producers:
            table = got[f"{producer.name}/voxel_extents"].copy()
            if len(table):
                table["first"] -= table["first"][0]
            got[f"{producer.name}/voxel_extents"] = table
        return super().differences(sample, got)

    def inspect(self, path: Path) -> FileInfo:
        with Larcv3Reader(path, self.options) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        for _ in range(self.options.opens - 1):
            # The application's first open: how many events are there?
            file = open_file(path, self.options.chunk_cache_bytes)
            with reading(file, path):
                require_events(file, path)
            file.close()
        return Larcv3Reader(path, self.options)


class _ChunkWriter:
    """Appends to an array chunk by chunk, each deflated by the pool and written as it is.

    ``H5Dwrite_chunk`` allocates file space and index nodes in the order of the calls, as the
    library does for a program that writes the events one after another.
    """

    def __init__(self, array: h5py.h5d.DatasetID, rows: int, level: int) -> None:
        self._array = array
        self._rows = rows
        self._level = level
        self._left: npt.NDArray[Any] = np.empty(0, VOXEL)
        self._next = 0

    def add(self, voxels: npt.NDArray[Any], pool: Executor) -> None:
        """Write all full chunks; what is left waits for the next call."""
        voxels = concatenate([self._left, voxels])
        full = len(voxels) // self._rows * self._rows
        pieces = [voxels[i : i + self._rows] for i in range(0, full, self._rows)]
        for chunk in pool.map(self._deflate, pieces):
            self._write(chunk)
        self._left = voxels[full:]

    def finish(self) -> None:
        """Write the last, partly filled chunk; stored chunks are always full, so it is padded."""
        if len(self._left):
            chunk = np.zeros(self._rows, VOXEL)
            chunk[: len(self._left)] = self._left
            self._write(self._deflate(chunk))

    def _deflate(self, rows: npt.NDArray[Any]) -> bytes:
        return zlib.compress(rows.tobytes(), self._level)

    def _write(self, chunk: bytes) -> None:
        self._array.write_direct_chunk((self._next,), chunk)
        self._next += self._rows


def _create(file: h5py.File, name: str, rows: int, dtype: np.dtype[Any], chunk: int, level: int) -> h5py.Dataset:
    return file.create_dataset(
        name, (rows,), dtype, chunks=(chunk,), maxshape=(None,), compression="gzip", compression_opts=level
    )


def _event_ids(first: int, count: int) -> npt.NDArray[Any]:
    ids = np.zeros(count, EVENT_ID)
    ids["run"], ids["event"] = 1, np.arange(first, first + count)
    return ids


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
