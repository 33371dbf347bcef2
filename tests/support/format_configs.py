"""Configurations that the built-in formats can work with."""

from __future__ import annotations

from dataclasses import replace

from recorded_requests import records, temporary_archive

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core import registry
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.formats.tokens.options import TokensConfig

ANY = DatasetConfig(
    fields=[FieldConfig("image", "float32", [16, 12]), FieldConfig("labels", "uint8", [16, 12])],
    volume=VolumeConfig(
        shape=[40, 48, 48],
        patch=[5, 7, 4],
        arrays=[
            VolumeArrayConfig("stack", "int64", [16, 16, 16], 0.2),
            VolumeArrayConfig("raw", "uint8", [16, 12, 16], 0.8),
        ],
    ),
    larcv3=Larcv3Config(
        producers=[ProducerConfig("a", "label", 2742, 175), ProducerConfig("b", "charge", 6641, 124)],
        image_shape=[256, 256],
        voxels_mean=2000,
        voxels_stdev=500,
    ),
    extents=ExtentsConfig(temporary_archive(records(64))),
    tokens=TokensConfig(window=48, header="llm.c"),  # bare tokens have no mark of their format
)
"""Options that a built-in format can work with; a new format is tested with them as it is registered."""

IMAGE = replace(ANY, samples_per_file=1, fields=[FieldConfig("image", "uint8", [16, 12, 3])])
FOLDER = ImageConfig(transform="random_resized_crop", size=16, classes=False, width_mean=40, height_mean=30)
ARRAY = replace(ANY, fields=ANY.fields[:1])
OTHERS = {
    "jpeg": IMAGE,
    "png": IMAGE,
    "imagefolder": replace(IMAGE, fields=[], image=FOLDER),
    "hdf5_crops": replace(
        ANY, hdf5=Hdf5Config(crop=[5, 7]), fields=[replace(field, shape=[90, 80]) for field in ANY.fields]
    ),
    "indexed_binary": ARRAY,
    "lmdb": ARRAY,
}
"""Options of formats that take no others."""

ONE_SAMPLE = ("jpeg", "png", "imagefolder")  # a file never holds more

CONFIGS = {name: replace(OTHERS.get(name, ANY), format=name) for name in registry.BUILTIN}
WITHOUT_FILES = ("synthetic",)
