"""Format ``larcv3``: larcv3's HDF5 files of sparse 2-D images, as Cosmic Tagger reads.

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

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import h5py

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.difference import Difference
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.file import METADATA_CACHE_LIMITS, open_file, reading
from dlio_torch.formats.larcv3.events import META, VOXEL_EXTENTS, EventContent
from dlio_torch.formats.larcv3.options import Larcv3Config
from dlio_torch.formats.larcv3.reader import EVENT_ID, Larcv3Reader, require_events
from dlio_torch.formats.larcv3.size_fit import VOXEL, mean_size
from dlio_torch.formats.larcv3.writer import Larcv3Writer, event_ids
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class Larcv3Format(Format):
    """Sparse images of ``dataset.larcv3.producers`` in larcv3 files."""

    name: ClassVar[str] = "larcv3"
    suffix: ClassVar[str] = ".h5"
    layout_version: ClassVar[int] = 2
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: Larcv3Config = config.of(Larcv3Config)
        super().__init__(config, seed)
        if not self.options.producers:
            raise ConfigError(
                "dataset.larcv3.producers is empty", hint="name at least one producer, as in conf/dataset/larcv3.yaml"
            )
        names = [producer.name for producer in self.options.producers]
        for name in names:
            if not name or "/" in name:
                raise ConfigError(
                    f"dataset.larcv3.producers: name={name!r} is not a valid name of an HDF5 group",
                    hint="use a name such as sparse2d_sbndwire",
                )
            if names.count(name) > 1:
                raise ConfigError(
                    f"dataset.larcv3.producers names {name!r} twice", hint="give each producer its own name"
                )
        if len(self.options.image_shape) != 2 or min(self.options.image_shape) < 1:
            raise ConfigError(
                f"dataset.larcv3.image_shape={self.options.image_shape} is not the shape of a 2-D image",
                hint="set two lengths, for example [2048, 1280]",
            )
        shares = self.options.image_shares
        if shares and (len(shares) != self.options.images or min(shares) <= 0):
            raise ConfigError(
                f"dataset.larcv3.image_shares={shares} must have one positive number for each of "
                f"{self.options.images} images",
                hint="set a number above 0 for each image, or set []",
            )
        low, high = METADATA_CACHE_LIMITS
        if self.options.metadata_cache_bytes and not low <= self.options.metadata_cache_bytes <= high:
            raise ConfigError(
                f"dataset.larcv3.metadata_cache_bytes={self.options.metadata_cache_bytes} is outside of the sizes "
                "that HDF5 accepts",
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
        for key in (
            "fields",
            "chunk_cache_bytes",
            "table_cache_chunks",
            "metadata_cache_bytes",
            "cold_events",
            "opens",
        ):
            options.pop(key, None)
        return options

    def expected(self, sample: int) -> Sample:
        event = self.content.event(sample)
        arrays: Sample = {"event_id": event_ids(1)[0]}
        for number, producer in enumerate(self.options.producers):
            arrays[f"{producer.name}/image_meta"] = self.content.meta(sample, number)
            arrays[f"{producer.name}/voxel_extents"] = self.content.voxel_extents(event)
            arrays[f"{producer.name}/voxels"] = self.content.voxels(event, number)
        return arrays

    def sample_bytes(self) -> float:
        images = len(self.options.producers) * self.options.images
        per_image = self.options.voxels_mean * VOXEL.itemsize + META.itemsize + VOXEL_EXTENTS.itemsize
        return EVENT_ID.itemsize + images * per_image

    def stored_bytes(self) -> float:
        # The published sizes are of chunks of 1,000 voxels.
        per_voxel = sum(map(mean_size, self.options.producers)) / 1000
        return self.options.images * self.options.voxels_mean * per_voxel + self.options.unread_bytes

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            Larcv3Writer(file, self.options, self.content, first_sample, num_samples, pool).write()

    def parameters(self) -> dict[str, float]:
        return self.content.parameters()

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        self.content.use_parameters(parameters)

    def difference(self, sample: int, got: Sample) -> Difference | None:
        # voxel_extents point into the file; counted from the event's own first voxel they are the
        # same wherever the event lies.
        got = dict(got)
        for producer in self.options.producers:
            table: Any = got[f"{producer.name}/voxel_extents"].copy()
            if len(table):
                table["first"] -= table["first"][0]
            got[f"{producer.name}/voxel_extents"] = table
        return super().difference(sample, got)

    def inspect(self, path: Path) -> FileInfo:
        with Larcv3Reader(path, self.options) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def layout(self, path: Path) -> FileLayout:
        # Caches as small as an application's would slow down the way through the index of all chunks.
        options = replace(self.options, table_cache_chunks=0, metadata_cache_bytes=0, cold_events=0)
        with Larcv3Reader(path, options) as reader:
            return FileLayout(reader.num_samples, reader.layouts())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        for _ in range(self.options.opens - 1):
            # The application's first open: how many events are there?
            file = open_file(path, self.options.chunk_cache_bytes)
            with reading(file, path):
                require_events(file, path)
            file.close()
        return Larcv3Reader(path, self.options)
