"""Descriptions of netCDF files: which variables are samples, and what is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import read

netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")

MODELS = {
    "NETCDF4": "netCDF-4",
    "NETCDF3_CLASSIC": "CDF-1",
    "NETCDF3_64BIT_OFFSET": "CDF-2",
    "NETCDF3_64BIT_DATA": "CDF-5",
}


def climate(path: Path, model: str = "NETCDF4", *, unlimited: bool = True, **attributes: str) -> None:
    with netCDF4.Dataset(path, "w", format=model) as file:
        for name, length in (("time", None if unlimited else 30), ("lat", 4), ("letters", 5)):
            file.createDimension(name, length)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(30)
        file.createVariable("lat", "f4", ("lat",))[:] = np.arange(4)
        file.createVariable("t2m", "f4", ("time", "lat"))[:] = np.arange(120).reshape(30, 4)
        packed = file.createVariable("rain", "i2", ("time", "lat"))
        packed.scale_factor = 0.5
        packed[:] = np.zeros((30, 4))
        file.createVariable("mask", "i4", ("lat",))[:] = 1
        file.createVariable("station", "S1", ("time", "letters"))
        file.setncatts(attributes)


def notes(description: DataDescription) -> dict[str, str]:
    return {array.name: array.note for array in description.arrays if array.note}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["file.nc", "file.h5"])
def test_samples_lie_along_the_record_dimension(model: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    climate(path, model, Conventions="CF-1.8")
    inspection = inspect_path(str(path))
    assert inspection.format == "netcdf"
    description = inspection.description
    assert description.fields == (FieldConfig("t2m", "float32", [4]), FieldConfig("rain", "int16", [4]))
    assert description.samples == 30
    assert notes(description) == {
        "time": "coordinates of a dimension, not samples",
        "lat": "coordinates of a dimension, not samples",
        "mask": "its first axis is lat of 4, that of the samples time of 30",
        "station": "no tensor holds strings, characters or user-defined types",
    }
    assert description.details["variant"] == MODELS[model]
    assert any("dataset.format=netcdf_cf also reads the coordinates" in line for line in description.notes)
    assert any(line.startswith("rain: stored with scale_factor") for line in description.notes)
    fmt = create(compose([f"dataset.path={path}"]).config.dataset, 1)
    reader = fmt.open(path)
    assert read(fmt, reader, [7])["t2m"].tolist() == [[28, 29, 30, 31]]
    reader.close()


@pytest.mark.parametrize("format_name", ["netcdf_cf", "hdf5"])
def test_another_format_that_reads_the_file_can_be_chosen(format_name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.nc"
    climate(path, unlimited=False, Conventions="CF-1.8")
    config = compose([f"dataset.path={path}", f"dataset.format={format_name}"]).config
    assert [field.name for field in config.dataset.fields] == ["t2m", "rain"]
    assert create(config.dataset, 1).inspect(path).num_samples == 30


def test_variables_of_several_dimensions_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createDimension("y", 4)  # of the same length, and yet another axis
        file.createVariable("a", "f4", ("x", "y"))[:] = 0
        file.createVariable("b", "f4", ("y", "x"))[:] = 0
    description = inspect_path(str(path)).description
    (question,) = description.questions
    assert question.problem == "the file holds arrays of several sets of samples: a (x of 4); b (y of 4)"
    assert question.setting == "dataset.fields=[{name: a, dtype: float32, shape: [4]}]"


def test_types_that_no_tensor_holds_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createVariable("text", str, ("x",))
        file.createVariable("kind", file.createEnumType("u1", "kind_t", {"A": 0, "B": 1}), ("x",), fill_value=0)
        file.createVariable("pair", file.createCompoundType(np.dtype([("a", "f4")]), "pair_t"), ("x",))
        file.createVariable("list", file.createVLType("f4", "list_t"), ("x",))
        file.createVariable("one", "f4", ())
        file.createGroup("inner").createVariable("value", "f4", ("x",), compression="zlib")[:] = 1
    description = inspect_path(str(path)).description
    assert set(notes(description)) == {"text", "kind", "pair", "list", "one"}
    assert description.fields == (FieldConfig("inner/value", "float32", []),)
    (inner,) = [array for array in description.arrays if array.name == "inner/value"]
    assert (inner.compression, inner.chunks) == ("zlib, shuffle", (4,))


def test_a_missing_library_is_named_with_the_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    climate(tmp_path / "four.nc")
    climate(tmp_path / "five.nc", "NETCDF3_64BIT_DATA")
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    with pytest.raises(MissingPackageError, match=r"dlio-torch\[netcdf\]', or set dataset\.format=hdf5"):
        inspect_path(str(tmp_path / "four.nc"))
    with pytest.raises(MissingPackageError, match=r"dlio-torch\[netcdf\]'$"):
        inspect_path(str(tmp_path / "five.nc"))
    assert inspect_path(str(tmp_path / "four.nc"), "hdf5").description.samples == 30


def test_damage_is_named(tmp_path: Path) -> None:
    for model in MODELS:
        path = tmp_path / f"{model}.nc"
        climate(path, model)
        path.write_bytes(path.read_bytes()[:400])
        with pytest.raises(DataError, match=rf"{model}\.nc"):
            inspect_path(str(path))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_what_is_described_is_read_as_by_the_library(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "random.nc"
    path.unlink(missing_ok=True)
    rows = data.draw(st.integers(1, 6))
    stored: dict[str, np.ndarray[Any, Any]] = {}
    with netCDF4.Dataset(path, "w", format=data.draw(st.sampled_from([*MODELS]))) as file:
        file.createDimension("sample", data.draw(st.sampled_from([None, rows])))
        for name in data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
            lengths = data.draw(st.lists(st.integers(1, 3), max_size=2))
            for axis, length in enumerate(lengths):
                file.createDimension(f"{name}{axis}", length)
            dtype = data.draw(st.sampled_from(["i1", "i2", "i4", "f4", "f8"]))
            stored[name] = np.random.default_rng(rows).integers(0, 100, (rows, *lengths)).astype(dtype)
            dimensions = ("sample", *(f"{name}{axis}" for axis in range(len(lengths))))
            file.createVariable(name, dtype, dimensions)[:] = stored[name]
    description = inspect_path(str(path)).description
    assert description.samples == rows
    fmt = create(DatasetConfig(format="netcdf", fields=list(description.fields)), 1)
    reader = fmt.open(path)
    batch = read(fmt, reader, range(rows))
    reader.close()
    assert {name: batch[name].numpy().tobytes() for name in stored} == {
        name: content.tobytes() for name, content in stored.items()
    }
