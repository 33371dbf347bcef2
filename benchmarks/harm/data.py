"""Creates one small data file of each format and variant, damages it, and reads it with both engines."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harm.mutate import BINARY, TEXT, Damage, damaged
from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.file_names import Names
from dlio_torch.data.dataset.manifest import Manifest, existing_manifest
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.formats.testing.helpers import write
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.iotrace.recorder.spans import NULL

SAMPLES = 7
_SEED = 5
_MIXED = [FieldConfig("a", shape=[5, 6]), FieldConfig("b", "int16", shape=[])]
_RAGGED = [FieldConfig("a", shape=[5]), FieldConfig("v", "int32", shape=[2], length_mean=4, length_stdev=2)]
_LARGE = [FieldConfig("a", shape=[900]), FieldConfig("v", shape=[2], length_mean=50, length_stdev=9)]
_CUT = [
    FieldConfig("a", shape=[7, 9, 11], chunk=[2, 3, 4, 11]),
    FieldConfig("v", "float64", shape=[4, 6], length_mean=5, length_stdev=2, chunk=[3, 4, 4]),
]
_LISTS = [
    FieldConfig("f", "float32", shape=[2], length_mean=400, length_stdev=300),
    FieldConfig("n", "int64", shape=[], length_mean=4, length_stdev=2),
    FieldConfig("a", "float32", shape=[900]),
]
_ROWS = [FieldConfig("a", "bool", shape=[16], length_mean=3, length_stdev=2)]
_PIXELS = [FieldConfig("image", "uint8", shape=[20, 30, 3])]
_LARCV3 = Larcv3Config(
    producers=[ProducerConfig("wire", "charge", 6641, 124)], image_shape=[128, 128], voxels_mean=150, voxels_stdev=60
)
_VOLUME = VolumeConfig(
    shape=[30, 32, 34], patch=[9, 12, 7], arrays=[VolumeArrayConfig("raw", "uint8", [16, 16, 24], 0.8)]
)

LAYOUTS: dict[str, dict[str, Any]] = {
    "hdf5": {"format": "hdf5", "fields": _RAGGED},
    "hdf5, chunks": {"format": "hdf5", "fields": _RAGGED, "hdf5": Hdf5Config(chunk_bytes=64)},
    "hdf5, gzip": {"format": "hdf5", "fields": _CUT, "hdf5": Hdf5Config(compression="gzip", chunk_bytes=300)},
    "hdf5, core": {"format": "hdf5", "fields": _MIXED, "hdf5": Hdf5Config(driver="core")},
    "hdf5_volume": {"format": "hdf5_volume", "volume": _VOLUME},
    "larcv3": {"format": "larcv3", "larcv3": _LARCV3},
    "netcdf": {"format": "netcdf", "fields": _RAGGED},
    "netcdf, zlib": {"format": "netcdf", "fields": _CUT, "netcdf": NetcdfConfig(chunk_bytes=300, compression="zlib")},
    "netcdf, classic": {"format": "netcdf", "fields": _RAGGED, "netcdf": NetcdfConfig(variant="classic")},
    "netcdf, records": {
        "format": "netcdf",
        "fields": _RAGGED,
        "netcdf": NetcdfConfig(variant="64bit_offset", unlimited=True),
    },
    "netcdf, cdf5": {"format": "netcdf", "fields": _RAGGED, "netcdf": NetcdfConfig(variant="64bit_data")},
    "netcdf_cf": {"format": "netcdf_cf", "fields": _RAGGED},
    "silo": {"format": "silo", "fields": _RAGGED},
    "adios2": {"format": "adios2", "fields": _RAGGED, "adios2": Adios2Config(samples_per_step=3)},
    "adios2, BP4": {"format": "adios2", "fields": _RAGGED, "adios2": Adios2Config(engine="BP4", samples_per_step=3)},
    "npy": {"format": "npy", "fields": _MIXED},
    "npz": {"format": "npz", "fields": _RAGGED},
    "npz, not small": {"format": "npz", "fields": _LARGE},
    "npz, deflated": {"format": "npz", "fields": _RAGGED, "npz": NpzConfig(compressed=True)},
    "tfrecord": {"format": "tfrecord", "fields": _LISTS, "tfrecord": TfrecordConfig(float_lists=["f"])},
    "tfrecord, unchecked": {
        "format": "tfrecord",
        "fields": _LISTS,
        "tfrecord": TfrecordConfig(float_lists=["f"], verify_crc=False),
    },
    "tfrecord, index": {"format": "tfrecord", "fields": _MIXED, "tfrecord": TfrecordConfig(index=True)},
    "tfrecord, gzip": {
        "format": "tfrecord",
        "fields": _LISTS,
        "tfrecord": TfrecordConfig(float_lists=["f"], compression="gzip"),
    },
    "parquet": {"format": "parquet", "fields": _RAGGED, "parquet": ParquetConfig(row_group_samples=3)},
    "csv": {"format": "csv", "fields": [*_MIXED, FieldConfig("t", "bool")]},
    "png": {"format": "png", "fields": _PIXELS},
    "jpeg": {"format": "jpeg", "fields": _PIXELS},
    "jpeg, stored": {"format": "jpeg", "fields": _PIXELS, "image": ImageConfig(decode=False)},
    "binary": {"format": "indexed_binary", "fields": [FieldConfig("a", "int32", shape=[16])]},
    "binary, rows": {"format": "indexed_binary", "fields": _ROWS},
    "binary, documents": {
        "format": "indexed_binary",
        "fields": [FieldConfig("a", "int32", shape=[16])],
        "binary": BinaryConfig(document_mean=23, document_stdev=9),
    },
}
"""Name -> options of ``dataset``."""


@dataclass(frozen=True)
class DataTarget:
    """A target that damages the files of a layout and reads them.

    Attributes:
        name: in :data:`LAYOUTS`.
        folder: for the sound file and the damaged ones.
        seed: of the damage.
    """

    name: str
    folder: Path
    seed: int

    @cached_property
    def options(self) -> DatasetConfig:
        """Options of the data set."""
        alone = LAYOUTS[self.name]["format"] in ("png", "jpeg")
        return DatasetConfig(num_files=1, samples_per_file=1 if alone else SAMPLES, **LAYOUTS[self.name])

    @cached_property
    def format(self) -> Format:
        """The format that reads the files.

        Raises:
            MissingPackageError: its package is not there.
        """
        return create(self.options, _SEED)

    @cached_property
    def sound(self) -> Mapping[str, bytes]:
        """The files of an undamaged data set, by their names below its folder."""
        home = self.folder / "sound"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        write(self.format, home / f"data{self.format.suffix}", 0, self.options.samples_per_file)
        return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}

    def __call__(self, case: int) -> str:
        """Damages the files and reads them."""
        rng = random.Random(f"{self.name}/{self.seed}/{case}")
        home = self.folder / f"case-{case}"
        home.mkdir(parents=True, exist_ok=True)
        victim = rng.choice([name for name, content in self.sound.items() if content])
        for name, content in self.sound.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(damaged(rng, content, _kinds(name, content)) if name == victim else content)
        read_all(self.format, self.options, home / f"data{self.format.suffix}", rng)
        shutil.rmtree(home)
        return "case-"


def _kinds(name: str, content: bytes) -> tuple[Damage, ...]:
    is_text = name.endswith((".csv", ".idx", ".json", ".txt")) and b"\0" not in content
    return TEXT if is_text else BINARY


def read_all(fmt: Format, options: DatasetConfig, path: Path, rng: random.Random) -> None:
    """Inspects a file as an existing or a generated one, and reads its samples.

    Raises:
        DataError: it is refused.
    """
    if rng.random() < 0.7:
        config = Config(dataset=DatasetConfig(**{**vars(options), "path": str(path)}))
        manifest, _ = existing_manifest(config, fmt)
    else:
        counts = FileCounts([options.samples_per_file], 1)
        manifest = Manifest("train", 0, counts, path.parent, Names([path.name]), fmt.suffix)
    way = rng.choice(
        ("sample", "block", "stream", "decoupled", "decoupled") if fmt.has_layout else ("sample", "block", "stream")
    )
    if way == "stream":
        _stream(fmt, path)
    elif way == "decoupled":
        _decoupled(fmt, manifest)
    else:
        count = manifest.num_samples
        rows = [*range(min(count, 2 * SAMPLES)), count - 1]
        dataset = SampleDataset(fmt, manifest, NULL, unit=way)
        dataset.__getitems__(rows)
        dataset.__getitems__(rows[:1])


def _stream(fmt: Format, path: Path) -> None:
    try:
        with closing(fmt.open(path)) as reader:
            if reader.num_samples is not None or type(fmt).stream is not Format.stream:
                for _ in islice(fmt.stream(reader), 3 * SAMPLES):
                    pass
    except OSError as error:  # as the pipes do
        raise DataError(f"{path} cannot be read: {error}") from error


def _decoupled(fmt: Format, manifest: Manifest) -> None:
    sampler = BatchSampler(SamplerSpec(batch_size=min(SAMPLES, manifest.num_samples)), num_samples=manifest.num_samples)
    source = DecoupledSource(fmt, manifest, NULL)
    loader = BatchLoader(LoaderConfig(engine="decoupled", timeout_s=20.0), source, sampler)
    try:
        for _ in islice(loader.epoch(0), 3):
            pass
    finally:
        loader.close()


def targets(folder: Path, seed: int) -> tuple[dict[str, DataTarget], dict[str, str]]:
    """The targets whose packages are installed, and why the others are not available."""
    found: dict[str, DataTarget] = {}
    missing: dict[str, str] = {}
    for name in LAYOUTS:
        one = DataTarget(name, folder / name.replace(", ", "-").replace(" ", "_"), seed)
        try:
            if one.sound:
                found[name] = one
        except (MissingPackageError, ConfigError) as error:
            missing[name] = str(error)
    return found, missing
