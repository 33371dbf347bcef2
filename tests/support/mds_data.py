"""Fields of MDS data sets, and a folder that the library of MosaicML wrote."""

from __future__ import annotations

from ranks import REPO

from dlio_torch.config.schema import DatasetConfig, FieldConfig

GOLDEN = REPO / "tests" / "formats" / "mds" / "golden"
"""Written by MDSWriter of mosaicml-streaming 0.13.0, by the program in ``test_mds_library.py``."""
FIELDS = [
    FieldConfig("label", "int64", []),
    FieldConfig("image", "float32", [16, 12]),
    FieldConfig("class", "uint8", []),
    FieldConfig("half", "float16", [33]),
    FieldConfig("tokens", "int32", [], length_mean=270, length_stdev=60),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
    FieldConfig("jpeg", "uint8", [], length_mean=900, length_stdev=200),
]


def config(*fields: FieldConfig) -> DatasetConfig:
    """The configuration of a data set with these fields."""
    return DatasetConfig(format="mds", fields=list(fields))
