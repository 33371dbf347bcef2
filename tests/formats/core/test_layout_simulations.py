"""Layout of files of simulations: the same bytes as their own libraries read, one line for every damage."""

from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from decoupled_data import assert_same, decoupled, faithful, outcome
from optional_parts import formats
from scientific_data import LAYOUTS, data_of

from dlio_torch.config.schema import DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.silo.library import library
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.swapping import NativeSwapper, NumpySwapper


@pytest.mark.parametrize("layout", formats(LAYOUTS))
def test_gives_the_bytes_of_the_library(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    for order, options in (("shuffled", {}), ("random_blocks", {"transfer_size": 100, "prefetch_bytes": 1})):
        sampler = BatchSampler(SamplerSpec(batch_size=4, order=order, seed=3), num_samples=manifest.num_samples)
        want = list(faithful(fmt, manifest, sampler).epoch(1))
        loader = decoupled(fmt, manifest, sampler, **options)
        got = list(loader.epoch(1))
        assert len(got) == len(want) == 5
        for one, other in zip(want, got, strict=True):
            assert_same(one, other)
        loader.close()


@pytest.mark.parametrize("layout", formats(LAYOUTS))
def test_damage_is_told_in_one_line(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    assert outcome(fmt, manifest) == []
    rng = random.Random(4)
    told = 0
    for path in (path for path in fmt.files(manifest.path(0)) if path.stat().st_size):
        sound = path.read_bytes()
        for _ in range(8):
            bad = bytearray(sound)
            bad[rng.randrange(min(len(bad), 3000))] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            found = outcome(fmt, manifest)
            assert all("\n" not in line for line in found)
            told += bool(found)
        path.write_bytes(sound)
        os.truncate(path, path.stat().st_size - 70)
        found = outcome(fmt, manifest)
        assert len(found) == 1  # the batch of that file alone
        assert manifest.path(0).name in found[0]
        path.write_bytes(sound)
    assert told


def batch_of(fmt: Format, path: Path, samples: int, how: str = "decoupled") -> Batch:
    """The samples of a file in one batch, by the decoupled engine or by the format's library."""
    manifest = Manifest("train", 0, FileCounts([samples]), path.parent, [path.name], fmt.suffix)
    sampler = BatchSampler(SamplerSpec(batch_size=samples, order="shuffled", seed=3), num_samples=samples)
    if how == "faithful":
        return next(faithful(fmt, manifest, sampler).epoch(0))
    loader = BatchLoader(LoaderConfig(engine="decoupled"), DecoupledSource(fmt, manifest, NULL), sampler)
    try:
        return next(loader.epoch(0))
    finally:
        loader.close()


# netCDF-4 files of other writers: options of the variable, and whether something is written.
FOREIGN: dict[str, dict[str, Any]] = {
    "big-endian": {"endian": "big", "contiguous": True},
    "big-endian, chunks": {"endian": "big", "chunksizes": (2, 3)},
    "big-endian, zlib": {"endian": "big", "chunksizes": (2, 3), "compression": "zlib", "fletcher32": True},
    "never written, fill value": {"fill_value": 7, "chunksizes": (2, 3)},
    "never written, zlib, big-endian": {"endian": "big", "chunksizes": (2, 3), "compression": "zlib"},
    "never written, contiguous": {"contiguous": True},
}


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("name", ["a", "x", "y"])
def test_netcdf_4_of_other_writers(case: str, name: str, tmp_path: Path) -> None:
    """Also where a variable is called as a dimension, whether it lies along it or not."""
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    content = np.random.default_rng(1).integers(-99, 99, (6, 5), np.int32)
    with netcdf.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 6)
        file.createDimension("y", 5)
        kind = ">i4" if "endian" in FOREIGN[case] else "i4"
        variable = file.createVariable(name, kind, ("x", "y"), **FOREIGN[case])
        if "never" not in case:
            variable[:] = content
        elif "contiguous" not in case:
            variable[2:3] = content[2:3]
    fmt = create(DatasetConfig(format="netcdf", fields=[FieldConfig(name, "int32", [5])]), 1)
    want = batch_of(fmt, tmp_path / "x.nc", 6, "faithful")
    assert_same(want, batch_of(fmt, tmp_path / "x.nc", 6))
    if "never" not in case:
        assert want[name].numpy().tobytes() == content[want["index"].numpy()].tobytes()


def test_rows_of_a_sample_may_be_records_with_others_between(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    with netcdf.Dataset(tmp_path / "x.nc", "w", format="NETCDF3_CLASSIC") as file:
        for dimension, length in (("row", None), ("sample", 3), ("pair", 2), ("n", 3)):
            file.createDimension(dimension, length)
        file.createVariable("a", "i2", ("row", "n"))[:] = np.arange(21).reshape(7, 3)
        file.createVariable("b", "i1", ("row",))[:] = np.arange(7)
        file.createVariable("a_extents", "i4", ("sample", "pair"))[:] = [[4, 3], [0, 0], [0, 4]]
    fmt = create(DatasetConfig(format="netcdf", fields=[FieldConfig("a", "int16", [3], length_mean=2)]), 1)
    want = batch_of(fmt, tmp_path / "x.nc", 3, "faithful")
    assert_same(want, batch_of(fmt, tmp_path / "x.nc", 3))
    with netcdf.Dataset(tmp_path / "x.nc", "a") as file:
        file["a_extents"][0] = 5, 3
    with pytest.raises(DataError, match="array a has 7 rows, but rows 5 to 7 were requested"):
        batch_of(fmt, tmp_path / "x.nc", 3)


def test_a_variable_that_is_shorter_than_its_dimension_is_refused(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    with netcdf.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", None)
        file.createVariable("a", "i4", ("x",))[:] = np.arange(3)
        file.createVariable("b", "i4", ("x",))[:] = np.arange(5)
    fmt = create(DatasetConfig(format="netcdf", fields=[FieldConfig("a", "int32", [])]), 1)
    with pytest.raises(DataError, match=r"a has shape \[5\], but only \[3\] is stored.*loader\.engine=dataloader"):
        fmt.layout(tmp_path / "x.nc")


@pytest.mark.needs("silo")
def test_silo_of_another_driver_is_refused(tmp_path: Path) -> None:
    fmt = create(DatasetConfig(format="silo", fields=[FieldConfig("a", "float32", [5])]), 1)
    pdb, shape = 2, (ctypes.c_int * 2)(3, 5)
    file = library().DBCreateReal(str(tmp_path / "x.silo").encode(), 0, 0, b"", pdb)
    content, zero, ones = np.ones((3, 5), np.float32), (ctypes.c_int * 2)(), (ctypes.c_int * 2)(1, 1)
    library().DBWriteSlice(file, b"a", content.ctypes.data, 19, zero, shape, ones, shape, 2)
    library().DBClose(file)
    assert batch_of(fmt, tmp_path / "x.silo", 3, "faithful")["a"].sum() == 15
    with pytest.raises(DataError, match=r"HDF5 driver.*loader\.engine=dataloader"):
        fmt.layout(tmp_path / "x.silo")


def steps_of_blocks(path: Path, engine: str, cuts: list[tuple[slice, slice]], operator: str = "") -> npt.NDArray[Any]:
    """Two steps of a variable ``a`` of 6 rows, each written in these blocks; returns all rows."""
    adios = pytest.importorskip("adios2.bindings", reason="adios2 is not installed")
    content = np.random.default_rng(1).random((2, 6, 500), np.float32)
    made = adios.ADIOS()
    output = made.DeclareIO("write")
    output.SetEngine(engine)
    variable = output.DefineVariable("a", content[0], [6, 500], [0, 0], [6, 500], False)
    if operator:
        variable.AddOperation(operator, {})
    file = output.Open(str(path), adios.Mode.Write)
    for step in content:
        file.BeginStep()
        for cut in cuts:
            block = np.ascontiguousarray(step[cut])
            variable.SetSelection([[cut[0].start or 0, cut[1].start or 0], list(block.shape)])
            file.Put(variable, block, adios.Mode.Sync)
        file.EndStep()
    file.Close()
    return content.reshape(12, 500)


ALL = slice(None)
BLOCKS = DatasetConfig(format="adios2", fields=[FieldConfig("a", "float32", [500])])


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_blocks_of_a_step_are_found(engine: str, tmp_path: Path) -> None:
    content = steps_of_blocks(tmp_path / "x.bp", engine, [(slice(4, 6), ALL), (slice(0, 1), ALL), (slice(1, 4), ALL)])
    fmt = create(BLOCKS, 1)
    got = batch_of(fmt, tmp_path / "x.bp", 12)
    assert got["a"].numpy().tobytes() == content[got["index"].numpy()].tobytes()
    assert_same(batch_of(fmt, tmp_path / "x.bp", 12, "faithful"), got)


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_blocks_that_only_the_library_reads_are_refused(engine: str, tmp_path: Path) -> None:
    fmt = create(BLOCKS, 1)
    steps_of_blocks(tmp_path / "x.bp", engine, [(ALL, slice(0, 200)), (ALL, slice(200, 500))])
    with pytest.raises(DataError, match=r"split along an axis other than the first.*loader\.engine=dataloader"):
        fmt.layout(tmp_path / "x.bp")
    steps_of_blocks(tmp_path / "y.bp", engine, [(slice(0, 4), ALL)])
    with pytest.raises(DataError, match="a step holds only 4 of the 6 rows of variable a"):
        fmt.layout(tmp_path / "y.bp")
    steps_of_blocks(tmp_path / "z.bp", engine, [(ALL, ALL)], "null")  # one that every build of the library has
    with pytest.raises(DataError, match=r"compressed.*loader\.engine=dataloader"):
        fmt.layout(tmp_path / "z.bp")
    for field, words in (
        ("b", r"has no global array named 'b'"),
        ("a", r"variable a is float32\[6, 500\], but dataset.fields expect int32\[n, 500\]"),
    ):
        other = create(DatasetConfig(format="adios2", fields=[FieldConfig(field, "int32", [500])]), 1)
        steps_of_blocks(tmp_path / f"{field}.bp", engine, [(ALL, ALL)])
        with pytest.raises(DataError, match=words):
            other.layout(tmp_path / f"{field}.bp")


@pytest.mark.parametrize("case", ["native", "numpy"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_elements_are_turned_where_they_lie(case: str, size: int) -> None:
    swapper = NativeSwapper() if case == "native" else NumpySwapper("a test")
    memory = np.arange(200, dtype=np.uint8)
    want = memory.copy()
    pieces = [(3, 8), (40, 0), (51, 64)]
    for at, length in pieces:
        want[at : at + length] = memory[at : at + length].reshape(-1, size)[:, ::-1].reshape(-1)
    addresses = memory.__array_interface__["data"][0] + np.array([at for at, _ in pieces])
    swapper.swap(addresses, np.array([length for _, length in pieces]), np.full(3, size))
    assert memory.tobytes() == want.tobytes()
