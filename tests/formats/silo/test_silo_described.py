"""Silo files are described by the tables of their HDF5 driver."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import check_batch, read, refusal, write

pytestmark = pytest.mark.needs("silo")

FIELDS = [
    FieldConfig("image", "float32", [4, 5]),
    FieldConfig("label", "int64", []),
    FieldConfig("points", "float64", [3], length_mean=9, length_stdev=2),
]


def test_plain_arrays_are_the_fields_and_others_are_named(tmp_path: Path) -> None:
    fmt = create(DatasetConfig(format="silo", fields=FIELDS), 1)
    path = write(fmt, tmp_path / "a.silo", 0, 6)
    with h5py.File(path, "r+") as file:
        file["grid"] = list(range(9))
        file.create_group("block0")
        file["mesh"] = np.dtype("i4")
        file["away"] = h5py.ExternalLink("other.silo", "/x")
    description = inspect_path(str(path), "silo").description
    assert [(field.name, field.dtype, field.shape) for field in description.fields] == [
        (field.name, field.dtype, field.shape) for field in FIELDS
    ]
    assert description.samples == 6
    assert {array.name for array in description.arrays if array.note} == {"block0", "mesh", "away"}
    again = create(DatasetConfig(format="silo", fields=list(description.fields)), 1)
    check_batch(fmt, read(again, again.open(path), range(6)), range(6))


def test_what_is_no_silo_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.silo"
    path.write_bytes(b"nothing of the kind" * 40)
    assert str(path) in refusal(lambda: inspect_path(str(path)))
