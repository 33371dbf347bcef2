"""netCDF: every variant, with and without the CF conventions; other readers and writers agree with ours."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
from format_reads import Reads, reads_after_open

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.netcdf.file import LOCK, NcFile
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.formats.testing.contract import FormatContract, is_open, read, refusal, write

netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")

FIXED = [
    FieldConfig("label", "int32", []),
    FieldConfig("image", "float32", [16, 12]),
    FieldConfig("mask", "uint8", [3, 16, 12]),
    FieldConfig("flags", "bool", [9]),
]
VARIABLE = [
    FieldConfig("tokens", "int16", [], length_mean=40, length_stdev=15),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
    FieldConfig("hits", "uint8", [3], length_mean=30, length_stdev=10),
]
MORE = [FieldConfig("group/number", "uint64", []), FieldConfig("group/inner/words", "uint32", [7])]


def options(fields: list[FieldConfig], kind: str = "netcdf", **values: Any) -> DatasetConfig:
    return DatasetConfig(format=kind, fields=fields, netcdf=NetcdfConfig(**values))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "netcdf4": options(FIXED + VARIABLE + MORE),
        "unlimited": options(FIXED + VARIABLE, unlimited=True),
        "chunked": options(FIXED + VARIABLE, chunk_bytes=512),
        "zlib": options(FIXED, chunk_bytes=2048, compression="zlib", compressibility=0.5),
        "zlib_unchunked": options(FIXED, compression="zlib", shuffle=False),
        "classic": options(FIXED + VARIABLE, variant="classic"),
        "64bit_offset": options(FIXED, variant="64bit_offset"),
        "cdf5": options(FIXED + VARIABLE + [FieldConfig("number", "uint64", [])], variant="64bit_data"),
        "classic_records": options(FIXED, variant="classic", unlimited=True),
        "one_record_variable": options([FieldConfig("b", "int8", [5])], variant="classic", unlimited=True),
        "records_and_rows": options(FIXED + VARIABLE, variant="64bit_data", unlimited=True),
    }


class TestCfContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "grid": options(FIXED, "netcdf_cf"),
        "series": options(VARIABLE, "netcdf_cf"),
        "series_and_grid": options(FIXED + VARIABLE[:1], "netcdf_cf", chunk_bytes=1024, compression="zlib"),
        "classic": options(FIXED, "netcdf_cf", variant="classic", unlimited=True),
        "classic_series": options(VARIABLE, "netcdf_cf", variant="64bit_offset"),
    }


def made(config: DatasetConfig, folder: Path, samples: int = 7) -> tuple[Format, Path]:
    fmt = create(config, 5)
    return fmt, write(fmt, folder / "a.nc", 0, samples)


def test_a_file_that_nobody_refers_to_is_closed_under_the_lock(tmp_path: Path) -> None:
    _, path = made(options(FIXED), tmp_path)
    file = NcFile(path)
    with LOCK:  # by a thread that is between two calls of the library
        del file
        gc.collect()
    assert not is_open(path)


# --- others agree ---


def test_h5py_reads_netcdf4(tmp_path: Path) -> None:
    config = options(FIXED + VARIABLE + MORE, chunk_bytes=512, compression="zlib")
    fmt, path = made(config, tmp_path)
    with h5py.File(path) as file:
        assert file["image"].dtype == np.float32
        assert (file["image"].compression, file["image"].shuffle, file["image"].chunks) == ("gzip", True, (1, 10, 12))
        for sample in range(7):
            want = fmt.expected(sample)
            for name in ("label", "image", "mask", "group/number", "group/inner/words"):
                np.testing.assert_array_equal(file[name][sample], want[name])
            np.testing.assert_array_equal(file["flags"][sample].astype(bool), want["flags"])
            for name in ("tokens", "points", "hits"):
                first, count = file[f"{name}_extents"][sample]
                np.testing.assert_array_equal(file[name][first : first + count], want[name])


@pytest.mark.parametrize(
    ("variant", "magic"), [("classic", b"CDF\x01"), ("64bit_offset", b"CDF\x02"), ("64bit_data", b"CDF\x05")]
)
@pytest.mark.parametrize("unlimited", [False, True])
def test_the_library_reads_classic_files(tmp_path: Path, variant: str, magic: bytes, unlimited: bool) -> None:
    fmt, path = made(options(FIXED, variant=variant, unlimited=unlimited), tmp_path)
    assert path.read_bytes()[:4] == magic
    with netCDF4.Dataset(path) as file:
        assert file.dimensions["sample"].isunlimited() is unlimited
        for sample in range(7):
            want = fmt.expected(sample)
            # Its own reading of _Unsigned; truth values are bytes.
            for name in ("label", "image", "mask", "flags"):
                np.testing.assert_array_equal(file[name][sample], want[name])
        assert file["mask"].dtype == (np.uint8 if variant == "64bit_data" else np.int8)
        assert file["flags"].getncattr("dtype") == "bool"


def test_records_lie_together(tmp_path: Path) -> None:
    fields = [FieldConfig("a", "int32", [2]), FieldConfig("b", "int16", [3])]
    fmt, path = made(options(fields, variant="classic", unlimited=True), tmp_path)
    tail = path.read_bytes()[-(8 + 8) :]  # the second array is padded to 4 bytes
    want = fmt.expected(6)
    assert tail == want["a"].astype(">i4").tobytes() + want["b"].astype(">i2").tobytes() + b"\0\0"


def test_cf_says_what_the_arrays_are(tmp_path: Path) -> None:
    _, path = made(
        options([FieldConfig("rain", "float32", [3, 4, 5]), FieldConfig("wind", "float64", [8, 5])], "netcdf_cf"),
        tmp_path,
    )
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "CF-1.11"
        assert file["rain"].dimensions == ("time", "level", "lat", "lon")
        assert file["wind"].dimensions == ("time", "lat_8", "lon")
        assert (file["rain"].units, file["rain"].long_name) == ("1", "rain")
        assert file["lat"][:].tolist() == [-67.5, -22.5, 22.5, 67.5]
        assert (file["lat"].units, file["lat"].standard_name, file["lat"].axis) == ("degrees_north", "latitude", "Y")
        assert (file["lon"].units, file["lon"].standard_name, file["lon"].axis) == ("degrees_east", "longitude", "X")
        times = netCDF4.num2date(file["time"][:], file["time"].units, file["time"].calendar)
        assert [time.isoformat() for time in times[:2]] == ["2000-01-01T00:00:00", "2000-01-01T01:00:00"]


def test_cf_ragged_arrays(tmp_path: Path) -> None:
    fmt, path = made(options(VARIABLE, "netcdf_cf"), tmp_path)
    with netCDF4.Dataset(path) as file:
        assert file.featureType == "timeSeries"
        assert file["sample_id"].cf_role == "timeseries_id"
        assert file["points"].dimensions[0] == file["hits"].dimensions[0] == "obs_2"
        assert (file["tokens"].coordinates, file["points"].coordinates) == ("time lat lon", "time_2 lat lon")
        for dimension, name in (("obs", "tokens"), ("obs_2", "points")):
            (count,) = file.get_variables_by_attributes(sample_dimension=dimension)
            ends = np.cumsum(count[:])
            assert ends[-1] == len(file.dimensions[dimension])
            np.testing.assert_array_equal(file[name][ends[3] : ends[4]], fmt.expected(4)[name])


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "other.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        file.Conventions = "ACDD-1.3, CF-1.8"
        file.createDimension("time", None)
        file.createDimension("x", 3)
        file.createDimension("station", 2)
        file.createDimension("o", 5)
        file.createVariable("big", ">f4", ("time", "x"), endian="big")[:] = np.arange(6).reshape(2, 3)
        packed = file.createVariable("packed", "i2", ("time", "x"))
        packed.scale_factor = 0.5
        packed[:] = np.arange(6).reshape(2, 3) / 2
        counts = file.createVariable("n_obs", "i2", ("station",))
        counts.sample_dimension = "o"
        counts[:] = [5, 0]
        file.createVariable("series", "f8", ("o",))[:] = np.arange(5)
    fields = [
        FieldConfig("big", "float32", [3]),
        FieldConfig("packed", "int16", [3]),
        FieldConfig("series", "float64", length_mean=2),
    ]
    fmt = create(options(fields, "netcdf_cf", variant="netcdf4"), 1)
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [1, 0])
    assert batch["big"].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert batch["packed"].tolist() == [[3, 4, 5], [0, 1, 2]]  # as stored: what is scaled is the application's
    assert batch["series"].tolist() == [0, 1, 2, 3, 4]
    assert batch["series:lengths"].tolist() == [0, 5]


def test_a_file_of_another_variant_is_read(tmp_path: Path) -> None:
    written, path = made(options(FIXED + VARIABLE, variant="classic"), tmp_path)
    fmt = create(options(FIXED + VARIABLE), 5)
    assert fmt.inspect(path).details["variant"] == "NETCDF3_CLASSIC"
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [3])
    np.testing.assert_array_equal(batch["points"], written.expected(3)["points"])


# --- what does not fit ---


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (options([FieldConfig("x", "float16", [3])]), "netCDF has no type for float16; use one of int8"),
        (options([FieldConfig("x", "int64", [3])], variant="classic"), "no 8-byte integers; set dataset"),
        (options([FieldConfig("a/x", "int8", [3])], variant="classic"), "name='a/x' cannot be used with dataset"),
        (options(FIXED, variant="classic", compression="zlib"), "classic variants have neither chunks nor compression"),
        (options(FIXED, variant="64bit_data", chunk_bytes=100), "classic variants have neither chunks nor compression"),
        (options([FieldConfig("x", "int8", [1 << 22])], variant="classic"), "bytes in a file, more than a variable"),
        (options([FieldConfig("x", "int8", [3], chunk=[2])]), "chunk=[2] does not fit the stored array, which has 2"),
        (options([*VARIABLE, FieldConfig("tokens_extents", "int8", [3])]), "is reserved for the extents of a"),
        (options([FieldConfig("lat", "int8", [3, 3])], "netcdf_cf"), "name='lat' is reserved for a coord"),
        (options([FieldConfig("row_size_2", "int8", [3]), *VARIABLE], "netcdf_cf"), "size_2' is reserved for a coord"),
        (options([FieldConfig("x", "int8", [3], select=[1])]), "whose files are read whole"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(config: DatasetConfig, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create(config, 1)
    assert words in str(caught.value)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    for kind in ("netcdf", "netcdf_cf"):
        with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[netcdf\]'"):
            create(options(FIXED, kind), 1)


@pytest.mark.parametrize("kind", ["netcdf", "netcdf_cf"])
@pytest.mark.parametrize("variant", ["classic", "64bit_offset", "64bit_data"])
@pytest.mark.parametrize("unlimited", [False, True])
def test_one_missing_byte_is_noticed(tmp_path: Path, kind: str, variant: str, unlimited: bool) -> None:
    """The library itself would give zeros."""
    fields = [FieldConfig("a", "float32", [5]), FieldConfig("b", "int32", [3])]
    fmt, path = made(options(fields, kind, variant=variant, unlimited=unlimited), tmp_path)
    size = path.stat().st_size
    os.truncate(path, size - 1)
    line = refusal(lambda: fmt.open(path), closed=path)
    assert line.startswith(f"{path} is incomplete: it has {size - 1} bytes, but its header describes {size} bytes")


@pytest.mark.parametrize("variant", ["netcdf4", "classic", "64bit_data"])
def test_damage_anywhere_gives_a_line_or_data(tmp_path: Path, variant: str) -> None:
    fmt, path = made(options(FIXED + VARIABLE, variant=variant, chunk_bytes=0), tmp_path)
    sound = path.read_bytes()
    generator = np.random.default_rng(3)
    refused = 0

    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, range(7))

    for _ in range(60):
        broken = bytearray(sound)
        place = int(generator.integers(0, 2000))
        broken[place : place + 8] = generator.bytes(8)
        path.write_bytes(broken)
        try:
            use()
        except Exception:
            assert str(path) in refusal(use)  # the library may hold it as long as its error
            refused += 1
    assert refused > 2


def test_damaged_chunks_are_refused(tmp_path: Path) -> None:
    fmt, path = made(options([FieldConfig("x", "float32", [64])], chunk_bytes=256, compression="zlib"), tmp_path)
    with h5py.File(path) as file:
        place = file["x"].id.get_chunk_info(3)
    with path.open("r+b") as file:
        file.seek(place.byte_offset)
        file.write(b"\xff" * place.size)
    with closing(fmt.open(path)) as reader:
        read(fmt, reader, [2])
        assert str(path) in refusal(lambda: read(fmt, reader, [3]))


def replaced(change: Callable[[Any], None], kind: str = "netcdf") -> Callable[[Path], str]:
    """What is said of a file with one thing changed."""

    def attempt(folder: Path) -> str:
        fmt, path = made(options([FieldConfig("x", "float32", [4]), VARIABLE[0]], kind), folder)
        with netCDF4.Dataset(path, "a") as file:
            change(file)
        return refusal(lambda: fmt.inspect(path), closed=path)

    return attempt


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (
            replaced(lambda file: file.renameVariable("x", "y")),
            "has no variable 'x'; its variables are: tokens_extents, y, tokens",
        ),
        (replaced(lambda file: file.renameVariable("tokens_extents", "y")), "has no variable 'tokens_extents'"),
        (replaced(lambda file: file["tokens_extents"].__setitem__((6, 0), 10**6)), "rows 1000000 to"),
        (replaced(lambda file: file.delncattr("Conventions"), "netcdf_cf"), "does not declare the CF conventions"),
        (replaced(lambda file: file["row_size"].delncattr("sample_dimension"), "netcdf_cf"), "sample_dimension='obs'"),
        (replaced(lambda file: file["row_size"].__setitem__(0, 10**6), "netcdf_cf"), "row_size does not divide the"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, attempt: Callable[[Path], str], words: str) -> None:
    assert words in attempt(tmp_path)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (FieldConfig("image", "float64", [16, 12]), "image holds float32, but the configuration expects float64"),
        (
            FieldConfig("image", "float32", [12, 16]),
            "image has shape [7, 16, 12], but the configuration expects [n, 12, 16]",
        ),
        (FieldConfig("group/x", "float32", [12, 16]), "has no group 'group', which the variable 'group/x' needs"),
    ],
)
def test_other_fields_are_refused(tmp_path: Path, field: FieldConfig, words: str) -> None:
    _, path = made(options(FIXED), tmp_path)
    assert words in refusal(lambda: create(options([field]), 1).inspect(path), closed=path)


# --- what is read ---

READ = {
    "contiguous": options([FieldConfig("x", "float32", [20000])]),
    "zlib": options([FieldConfig("x", "float32", [5000])], chunk_bytes=40000, compression="zlib"),
    "ragged": options([FieldConfig("x", "float32", [100], length_mean=40)]),
    "ragged_cf": options([FieldConfig("x", "float32", [100], length_mean=40)], "netcdf_cf"),
    "classic": options([FieldConfig("x", "float32", [5000]), FieldConfig("y", "int8", [40])], variant="64bit_data"),
    "records": options(
        [FieldConfig("x", "float32", [5000]), FieldConfig("y", "int8", [40])], variant="64bit_data", unlimited=True
    ),
}


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    return reads_after_open(READ, tmp_path_factory.mktemp("reads"))


def test_a_slab_is_one_call(reads: Reads) -> None:
    path, calls = reads["contiguous"]
    with h5py.File(path) as file:
        place = file["x"].id.get_offset()
    assert [(call.name, call.offset, call.result) for call in calls] == [
        ("pread64", place + 50 * 80000, 80000),
        ("pread64", place + 10 * 80000, 20 * 80000),
    ]


def test_compressed_chunks_are_read_whole(reads: Reads) -> None:
    path, calls = reads["zlib"]
    with h5py.File(path) as file:
        chunks = [file["x"].id.get_chunk_info(i) for i in range(50)]
    wanted = [(chunks[i].byte_offset, chunks[i].size) for i in (25, *range(5, 15))]
    assert [(call.offset, call.result) for call in calls if call.result > 10000] == wanted


def test_a_ragged_sample_is_one_read_besides_its_index(reads: Reads) -> None:
    """CF's counts were read at the open; the generic table is read with each sample, ahead to its end."""
    sizes = {name: [call.result for call in reads[name][1]] for name in ("ragged", "ragged_cf")}
    assert sizes["ragged_cf"] == [65536, 20 * 40 * 400]
    assert sizes["ragged"] == [50 * 16, 65536, 90 * 16, 20 * 40 * 400]


@pytest.mark.parametrize("name", ["classic", "records"])
def test_classic_files_are_read_by_blocks(reads: Reads, name: str) -> None:
    _, calls = reads[name]
    needed = 21 * 20040
    assert needed <= sum(call.result for call in calls) <= 1.6 * needed  # whole blocks of the library's buffer
    assert max(call.result for call in calls) <= 65536
