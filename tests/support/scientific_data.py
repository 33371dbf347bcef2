"""Small data sets in the formats of simulations, for the decoupled engine; their packages may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from data_files import config_of, make

from dlio_torch.config.schema import FieldConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.errors import MissingPackageError
from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.formats.parquet.options import ParquetConfig

MIXED = [FieldConfig("b", "int8", [5]), FieldConfig("x", "float64", [3, 2]), FieldConfig("s", "int16", [])]
RAGGED = [*MIXED, FieldConfig("v", "int32", [2], length_mean=4, length_stdev=2)]
CUT = [
    FieldConfig("a", shape=[7, 9, 11], chunk=[2, 3, 4, 11]),
    FieldConfig("v", "float64", shape=[4, 6], length_mean=5, length_stdev=2, chunk=[3, 4, 4]),
]
ALONE = [FieldConfig("a", "int8", [5])]


def _netcdf(fields: list[FieldConfig], kind: str = "netcdf", **options: Any) -> dict[str, Any]:
    return {"format": kind, "fields": fields, "netcdf": NetcdfConfig(**options)}


STEPS = [FieldConfig("group/number", "int64", []), FieldConfig("half", "float16", [5]), *RAGGED]


def _adios2(fields: list[FieldConfig], **options: Any) -> dict[str, Any]:
    return {"format": "adios2", "fields": fields, "adios2": Adios2Config(**options)}


# Name -> options of dataset.
LAYOUTS: dict[str, dict[str, Any]] = {
    "adios2": _adios2(STEPS),
    "adios2, steps": _adios2(STEPS, samples_per_step=3),
    "adios2, BP4": _adios2(STEPS, engine="BP4"),
    "adios2, BP4, steps": _adios2(STEPS, engine="BP4", samples_per_step=3),
    "netcdf": _netcdf([FieldConfig("group/number", "uint64", []), *RAGGED]),
    "netcdf, unlimited": _netcdf(RAGGED, unlimited=True),
    "netcdf, zlib": _netcdf(CUT, chunk_bytes=300, compression="zlib"),
    "netcdf, classic": _netcdf(RAGGED, variant="classic"),
    "netcdf, records": _netcdf(RAGGED, variant="64bit_offset", unlimited=True),
    "netcdf, one record variable": _netcdf(ALONE, variant="classic", unlimited=True),
    "netcdf, cdf5": _netcdf([FieldConfig("n", "uint64", []), *RAGGED], variant="64bit_data"),
    "netcdf_cf": _netcdf(RAGGED, "netcdf_cf", chunk_bytes=300),
    "netcdf_cf, classic": _netcdf(RAGGED, "netcdf_cf", variant="classic", unlimited=True),
    "parquet": {"format": "parquet", "fields": RAGGED, "parquet": ParquetConfig(row_group_samples=3)},
    "parquet, one row group": {"format": "parquet", "fields": [FieldConfig("a", "uint8", [300])]},
    "silo": {"format": "silo", "fields": RAGGED},
    "silo, packed axes": {"format": "silo", "fields": [FieldConfig("a", "uint16", [3, 4, 5])]},
}


def data_of(root: Path, layout: str) -> tuple[Format, Manifest]:
    """A data set of 21 samples in 3 files below ``root``; skips the test where a package is missing."""
    try:
        fmt, manifests = make(config_of(root, num_files=3, samples_per_file=7, **LAYOUTS[layout]))
    except MissingPackageError as error:
        pytest.skip(str(error))
    return fmt, manifests["train"]
