"""Generic HDF5: the contract over many layouts, chunks and filters as they lie in the file, and damage."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from straced import needs_strace, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.batch import BatchBuffer, samples_of
from dlio_torch.formats.core.chunk_shapes import chunk_shape
from dlio_torch.formats.hdf5.format import EXTENTS, Hdf5Format
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.testing.contract import FormatContract, check_batch, is_open, read, refusal, write

FIXED = [FieldConfig("data", "float32", [24, 10])]  # 960 bytes
VARIABLE = [FieldConfig("points", "float32", [3], length_mean=100, length_stdev=30)]  # 1,200 bytes
SCALARS = [
    FieldConfig("label", "int32", []),
    FieldConfig("weight", "float64", []),
    FieldConfig("hits", "int16", [], length_mean=300, length_stdev=90),
    FieldConfig("image", "uint8", [40, 40]),
]
GROUPS = [
    FieldConfig("climate/data", "float32", [4, 12, 18]),
    FieldConfig("climate/labels", "float32", [12, 18]),
    FieldConfig("climate/tracks/points", "float16", [2], length_mean=150, length_stdev=20),
]


def config(fields: list[FieldConfig], **hdf5: Any) -> DatasetConfig:
    return DatasetConfig(format="hdf5", fields=fields, hdf5=Hdf5Config(**hdf5))


class TestHdf5(FormatContract):
    num_samples: ClassVar[int] = 23  # no multiple of a chunk
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "fixed": config(FIXED),
        "fixed-cut-chunks": config(FIXED, chunk_bytes=256),
        "fixed-one-element-chunks": config([FieldConfig("data", "float64", [2, 3])], chunk_bytes=1),
        "fixed-chunks-of-samples": config(FIXED, chunk_bytes=4000),
        "fixed-one-chunk": config(FIXED, chunk_bytes=1 << 20),
        "fixed-own-chunk": config([replace(FIXED[0], chunk=[2, 24, 5])]),
        "fixed-gzip": config([FieldConfig("data", "float32", [2400])], chunk_bytes=4000, compression="gzip"),
        "fixed-lzf": config([FieldConfig("data", "int32", [2400])], chunk_bytes=4000, compression="lzf"),
        "variable": config(VARIABLE),
        "variable-cut-chunks": config(VARIABLE, chunk_bytes=256),
        "variable-chunks": config(VARIABLE, chunk_bytes=4000),
        "variable-gzip": config(
            VARIABLE, chunk_bytes=4000, compression="gzip", compression_level=9, compressibility=0.5
        ),
        "variable-lzf": config(VARIABLE, chunk_bytes=4000, compression="lzf", compressibility=0.5),
        "scalars": config(SCALARS),
        "scalars-lzf": config(SCALARS, chunk_bytes=2048, compression="lzf", compressibility=0.25),
        "selected": config([replace(FIXED[0], select=[0, 1, 2, 10, 23]), *SCALARS]),
        "selected-cut-chunks": config([replace(FIXED[0], select=[1, 7])], chunk_bytes=256, compression="gzip"),
        "selected-all": config([replace(FIXED[0], select=list(range(24)))]),
        "selected-vector": config([FieldConfig("data", "int16", [600], select=[5, 598])]),
        "core": config(GROUPS, driver="core"),
        "opened-for-each-read": config(SCALARS, reopen="array"),
        "file-opened-for-each-sample": config(SCALARS, reopen="file"),
        "file-loaded-for-each-sample": config(FIXED, reopen="file", driver="core"),
        "groups": config(GROUPS),
        "groups-gzip": config(GROUPS, chunk_bytes=2048, compression="gzip", compression_level=0),
    }

    # Headers and index nodes of the smallest chunks outweigh the data; the estimate is of the data.
    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with h5py.File(self.written(fmt, tmp_path), "r") as file:
            size = sum(file[spec.name].id.get_storage_size() for spec in fmt.specs())
            size += sum(file[f"{spec.name}_extents"].nbytes for spec in fmt.specs() if spec.variable)
        assert fmt.stored_bytes() * self.num_samples == pytest.approx(size, rel=0.25)


class TestEveryDtype(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        dtype: config([FieldConfig("data", dtype, [64, 64]), FieldConfig("scalar", dtype, [])]) for dtype in DTYPES
    }


@pytest.mark.parametrize("compression", ["gzip", "lzf"])
def test_the_estimate_holds_for_whole_files(compression: str, tmp_path: Path) -> None:
    fields = [FieldConfig("mask", "bool", [4096]), FieldConfig("data", "float32", [4096])]
    fmt = Hdf5Format(
        replace(config(fields, chunk_bytes=16384, compression=compression, compressibility=0.3), samples_per_file=40), 1
    )
    size = write(fmt, tmp_path / "file.h5", 0, 40).stat().st_size
    assert fmt.stored_bytes() * 40 == pytest.approx(size, rel=0.1)
    assert size < 0.9 * fmt.sample_bytes() * 40


def test_the_estimate_counts_whole_chunks(tmp_path: Path) -> None:
    fmt = Hdf5Format(replace(config(FIXED, chunk_bytes=4 * 960), samples_per_file=5), 1)
    with h5py.File(write(fmt, tmp_path / "file.h5", 0, 5), "r") as file:
        assert file["data"].id.get_storage_size() == fmt.stored_bytes() * 5 == 8 * 960


# --- chunks and filters in the file -----------------------------------------------------------------


@given(
    rows=st.integers(1, 10**6),
    shape=st.lists(st.integers(1, 3000), max_size=4),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    chunk_bytes=st.integers(1, 1 << 24),
)
def test_chunks_fit(rows: int, shape: list[int], itemsize: int, chunk_bytes: int) -> None:
    chunk = chunk_shape(rows, tuple(shape), itemsize, chunk_bytes)
    size = math.prod(chunk) * itemsize
    assert len(chunk) == 1 + len(shape)
    assert all(1 <= part <= length for part, length in zip(chunk, (rows, *shape), strict=True))
    assert size <= chunk_bytes or math.prod(chunk) == 1
    # Not much smaller than it may be: one more along the axis that is cut would be too much.
    cut = next((axis for axis, part in enumerate(chunk) if part < (rows, *shape)[axis]), None)
    axes = [axis for axis, part in enumerate(chunk) if part < (rows, *shape)[axis]]
    if cut is not None:
        last = axes[-1]
        assert size // chunk[last] * (chunk[last] + 1) > chunk_bytes


@pytest.mark.parametrize(
    ("chunk_bytes", "expected"),
    [
        (0, None),
        (1, (1, 1, 1)),
        (40, (1, 1, 10)),  # a row of the sample
        (100, (1, 2, 10)),
        (960, (1, 24, 10)),  # a sample
        (2000, (2, 24, 10)),
        (1 << 30, (23, 24, 10)),  # the array
    ],
)
def test_chunks_of_a_file(chunk_bytes: int, expected: tuple[int, ...] | None, tmp_path: Path) -> None:
    fmt = Hdf5Format(config(FIXED, chunk_bytes=chunk_bytes), 1)
    path = write(fmt, tmp_path / "file.h5", 0, 23)
    with h5py.File(path, "r") as file:
        assert file["data"].chunks == expected
        assert file["data"].shape == (23, 24, 10)
        assert file["data"].compression is None
    assert fmt.inspect(path).details == {"data": {"chunks": expected, "compression": None}}


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({"compression": "gzip", "compression_level": 1}, ("gzip", 1)),
        ({"compression": "gzip", "compression_level": 9}, ("gzip", 9)),
        ({"compression": "lzf"}, ("lzf", None)),
        ({"compression": "none"}, (None, None)),
    ],
)
def test_filters_of_a_file(options: dict[str, Any], stored: tuple[str | None, int | None], tmp_path: Path) -> None:
    fmt = Hdf5Format(config(GROUPS, chunk_bytes=1024, **options), 1)
    with h5py.File(write(fmt, tmp_path / "file.h5", 0, 5), "r") as file:
        for field in GROUPS:
            array = file[field.name]
            assert (array.compression, array.compression_opts) == stored
            assert not array.shuffle
            assert not array.fletcher32


@pytest.mark.parametrize("compression", ["gzip", "lzf"])
def test_compressible_data_are_stored_smaller(compression: str, tmp_path: Path) -> None:
    sizes = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        fmt = Hdf5Format(
            config([FieldConfig("data", "int32", [8192])], chunk_bytes=32768, compression=compression,
                   compressibility=share), 1,
        )  # fmt: skip
        with h5py.File(write(fmt, tmp_path / f"{share}.h5", 0, 8), "r") as file:
            sizes.append(file["data"].id.get_storage_size() / file["data"].nbytes)
    assert sizes[0] == pytest.approx(1.0, abs=0.01)
    assert np.diff(sizes) == pytest.approx([-0.25] * 4, abs=0.06)


def test_chunks_lie_in_the_order_of_samples(tmp_path: Path) -> None:
    # Several blocks of payload, whose borders are none of chunks: no chunk is written, moved and written again.
    fields = [FieldConfig("data", "float32", [1 << 16]), FieldConfig("rows", "float32", [999], length_mean=60)]
    fmt = Hdf5Format(config(fields, chunk_bytes=5 << 20, compression="gzip", compression_level=1,
                            compressibility=0.9), 1)  # fmt: skip
    path = write(fmt, tmp_path / "file.h5", 0, 80)
    stored = 0
    with h5py.File(path, "r") as file:
        for name in ("data", "rows"):
            array = file[name].id
            chunks = [array.get_chunk_info(number) for number in range(array.get_num_chunks())]
            assert len(chunks) >= 4
            offsets = [chunk.byte_offset for chunk in chunks]
            assert offsets == sorted(offsets)
            stored += array.get_storage_size()
    assert path.stat().st_size < 1.01 * stored + 10_000


def test_variable_samples_lie_one_after_another(tmp_path: Path) -> None:
    fmt = Hdf5Format(config(VARIABLE, chunk_bytes=512), 5)
    with h5py.File(write(fmt, tmp_path / "file.h5", 100, 30), "r") as file:
        extents = file["points_extents"][:]
        assert file["points_extents"].dtype == EXTENTS
        assert file["points"].shape == (int(extents["N"].sum()), 3)
        assert extents["first"].tolist() == np.concatenate([[0], np.cumsum(extents["N"])[:-1]]).tolist()
        assert len(set(extents["N"].tolist())) > 10
        for row, sample in enumerate(range(100, 130)):
            first, count = extents[row]
            assert file["points"][first : first + count].tobytes() == fmt.expected(sample)["points"].tobytes()


@pytest.mark.parametrize(
    ("field", "samples", "options"),
    [
        (FieldConfig("data", "float32", [100, 100]), 90, {}),
        (FieldConfig("data", "uint8", [3, 1001, 1000]), 1, {}),
        (FieldConfig("data", "float64", [30], length_mean=900, length_stdev=200), 20, {}),
        (FieldConfig("data", "uint8", [7]), 900, {}),
        (FieldConfig("data", "int16", [100, 100], chunk=[7, 33, 100]), 30, {"compression": "gzip"}),
        (FieldConfig("data", "int16", [100, 100]), 300, {"compression": "gzip", "chunk_bytes": 1 << 20}),
    ],
)
def test_files_are_those_that_the_library_writes(
    field: FieldConfig, samples: int, options: dict[str, Any], tmp_path: Path
) -> None:
    # Plain writes and chunks that were deflated elsewhere: byte for byte what the library does by itself.
    fmt = Hdf5Format(config([field], compressibility=0.6, compression_level=1, **options), 1)
    mine = write(fmt, tmp_path / "file.h5", 3, samples)
    rows = np.concatenate(
        [np.atleast_1d(fmt.expected(3 + i)["data"]).reshape(-1, *field.shape) for i in range(samples)]
    )
    with h5py.File(tmp_path / "oracle.h5", "w", libver="earliest") as file, h5py.File(mine, "r") as read:
        how = {"compression": "gzip", "compression_opts": 1} if options else {}
        array = file.create_dataset("data", rows.shape, rows.dtype, chunks=read["data"].chunks, **how)
        if field.length_mean > 0:
            file.create_dataset("data_extents", data=read["data_extents"][:])
        array[:] = rows
    assert mine.read_bytes() == (tmp_path / "oracle.h5").read_bytes()


# --- identity of a data set -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"chunk_bytes": 512},
        {"compression": "lzf"},
        {"compression_level": 5},
        {"compressibility": 0.5},
    ],
)
def test_options_that_change_bytes_change_the_identity(changed: dict[str, Any]) -> None:
    base = {"chunk_bytes": 256, "compression": "gzip"}
    assert (
        Hdf5Format(config(FIXED, **base | changed), 1).layout_options()
        != Hdf5Format(config(FIXED, **base), 1).layout_options()
    )


@pytest.mark.parametrize(
    "field",
    [
        FieldConfig("other", "float32", [24, 10]),
        FieldConfig("data", "float64", [24, 10]),
        FieldConfig("data", "float32", [10, 24]),
        FieldConfig("data", "float32", [24, 10], length_mean=2),
        FieldConfig("data", "float32", [24, 10], chunk=[1, 24, 10]),
    ],
)
def test_fields_change_the_identity(field: FieldConfig) -> None:
    assert Hdf5Format(config([field]), 1).layout_options() != Hdf5Format(config(FIXED), 1).layout_options()


def test_options_of_reading_leave_the_identity_alone() -> None:
    small = Hdf5Format(
        config([replace(FIXED[0], select=[3, 5])], chunk_cache_bytes=0, driver="core", reopen="array"), 1
    )
    assert small.layout_options() == Hdf5Format(config(FIXED), 1).layout_options()


# --- configurations that cannot work ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "dataset.fields is empty"),
        ([FieldConfig("a"), FieldConfig("a")], "names 'a' twice"),
        ([FieldConfig("a"), FieldConfig("a/b")], "'a' is an array and cannot also be the group of 'a/b'"),
        ([FieldConfig("")], "name='' is not a valid path"),
        ([FieldConfig("/a")], "name='/a' is not a valid path"),
        ([FieldConfig("a//b")], "name='a//b' is not a valid path"),
        ([FieldConfig("index")], "name='index' is reserved for an entry"),
        ([FieldConfig("a:lengths")], "name='a:lengths' is reserved for an entry"),
        ([FieldConfig("a", length_mean=3), FieldConfig("a_extents")], "'a_extents' is reserved"),
        ([FieldConfig("a", "float31")], "dtype='float31' is not a NumPy type"),
        ([FieldConfig("a", "S8")], "dtype='S8' is not an element type of torch tensors"),
        ([FieldConfig("a", "complex64")], "dtype='complex64' is not an element type"),
        ([FieldConfig("a", "longdouble")], "dtype='longdouble' is not an element type"),
        ([FieldConfig("a", ">f4")], "dtype='>f4' is not an element type"),
        ([FieldConfig("a", shape=[3, 0])], "shape=[3, 0] has an axis of length 0 or less"),
        ([FieldConfig("a", shape=[3], chunk=[1])], "chunk=[1] does not fit the stored array, which has 2 axes"),
        ([FieldConfig("a", shape=[3], chunk=[1, 0])], "chunk=[1, 0] does not fit"),
        ([FieldConfig("a", shape=[1 << 31], chunk=[1, 1 << 31])], "HDF5 allows less than 4 GiB"),
        ([FieldConfig("a", select=[0])], "select=[0] needs a fixed-length field with at least one axis"),
        ([FieldConfig("a", shape=[3], length_mean=2, select=[0])], "select=[0] needs a fixed-length field"),
        ([FieldConfig("a", shape=[3], select=[3])], "select=[3] must be ascending indices below 3"),
        ([FieldConfig("a", shape=[3], select=[-1])], "select=[-1] must be ascending indices below 3"),
        ([FieldConfig("a", shape=[3], select=[1, 0])], "select=[1, 0] must be ascending indices"),
        ([FieldConfig("a", shape=[3], select=[1, 1])], "select=[1, 1] must be ascending indices"),
    ],
)
def test_wrong_fields_are_named(fields: list[FieldConfig], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Hdf5Format(config(fields), 1)
    assert words in str(caught.value)
    assert "dataset.fields" in str(caught.value)


# --- files that do not fit ------------------------------------------------------------------------------


def both(fmt: Hdf5Format, path: Path) -> str:
    """What inspect() says; opening must refuse as well, and with the same words.  Else the first read does."""
    late = Hdf5Format(replace(fmt.config, hdf5=replace(fmt.options, reopen="array")), 1)

    def use() -> None:
        with closing(late.open(path)) as reader:
            read(late, reader, [0])

    line = refusal(lambda: fmt.inspect(path), closed=path)
    assert refusal(lambda: fmt.open(path), closed=path) == line
    assert refusal(use, closed=path) == line
    return line


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([FieldConfig("images", "float32", [24, 10])], "has no array 'data' (group / contains: images)"),
        ([FieldConfig("data/x", "float32", [24, 10])], "has no array 'data' (group /data contains: x)"),
        (
            [FieldConfig("data", "float64", [24, 10])],
            "data holds float64, but the configuration expects float32; correct dataset.fields",
        ),
        ([FieldConfig("data", "int32", [24, 10])], "data holds int32, but the configuration expects float32"),
        ([FieldConfig("data", ">f8", [24, 10])], "data holds >f8, but the configuration expects float32"),
        (
            [FieldConfig("data", "float32", [10, 24])],
            "data has shape [4, 10, 24], but the configuration expects [rows, 24, 10]",
        ),
        (
            [FieldConfig("data", "float32", [24, 10, 1])],
            "data has shape [4, 24, 10, 1], but the configuration expects [rows, 24, 10]",
        ),
        ([FieldConfig("data", "float32", [])], "data has shape [4], but the configuration expects [rows, 24, 10]"),
    ],
)
def test_another_layout_is_named(other: list[FieldConfig], words: str, tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        for field in other:
            file.create_dataset(field.name, (4, *field.shape), field.dtype)
    line = both(Hdf5Format(config(FIXED), 1), path)
    assert str(path) in line
    assert words in line


def test_a_group_below_an_array_is_named(tmp_path: Path) -> None:
    path = write(Hdf5Format(config([FieldConfig("climate")]), 1), tmp_path / "file.h5", 0, 3)
    assert "has no array 'climate/data' (/climate is not a group)" in both(
        Hdf5Format(config([FieldConfig("climate/data")]), 1), path
    )


@pytest.mark.parametrize("content", [np.float32(1), h5py.Empty("f4")])
def test_a_single_value_is_no_array(content: object, tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["data"] = content
    assert "data is a scalar" in both(Hdf5Format(config([FieldConfig("data", "float32", [])]), 1), path)


def test_arrays_that_disagree_on_samples_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = np.zeros(5, np.float32), np.zeros(4, np.float32)
    line = both(Hdf5Format(config([FieldConfig("a"), FieldConfig("b")]), 1), path)
    assert "the arrays hold different numbers of samples: a has 5, b has 4" in line


def variable_file(path: Path, extents: list[tuple[int, int]], rows: int = 10) -> Path:
    with h5py.File(path, "w") as file:
        file["points"] = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        file["points_extents"] = np.array(extents, EXTENTS)
    return path


def test_a_missing_or_wrong_table_of_extents_is_named(tmp_path: Path) -> None:
    fmt = Hdf5Format(config(VARIABLE), 1)
    path = variable_file(tmp_path / "file.h5", [(0, 10)])
    with h5py.File(path, "r+") as file:
        del file["points_extents"]
    assert "has no array 'points_extents'" in both(fmt, path)
    with h5py.File(path, "r+") as file:
        file["points_extents"] = np.zeros(3, [("first", "u8"), ("N", "u8")])
    assert "points_extents holds" in both(fmt, path)


@pytest.mark.parametrize("bad", [(8, 3), (11, 0), (0, 4_000_000_000), (1 << 63, 1), ((1 << 64) - 1, 1)])
def test_extents_beyond_the_array(bad: tuple[int, int], tmp_path: Path) -> None:
    fmt = Hdf5Format(config(VARIABLE), 1)
    path = variable_file(tmp_path / "file.h5", [(0, 8), bad])
    assert "points has 10 rows, but rows" in refusal(lambda: fmt.inspect(path))
    reader = fmt.open(path)
    read(fmt, reader, [0])
    assert "points has 10 rows, but rows" in refusal(lambda: read(fmt, reader, [1]))
    reader.close()


def test_a_run_of_samples_that_are_not_neighbours_is_refused(tmp_path: Path) -> None:
    fmt = Hdf5Format(config(VARIABLE), 1)
    path = variable_file(tmp_path / "file.h5", [(7, 3), (0, 7)])
    reader = fmt.open(path)
    line = refusal(lambda: reader.read(0, 2, BatchBuffer(fmt.specs(), [0, 1]), 0))
    assert "are not adjacent, so that one call" in line
    assert "access.unit=sample" in line
    samples = [sample["points"] for _, sample in samples_of(read(fmt, reader, [0, 1]), fmt.specs())]
    assert [sample[:, 0].tolist() for sample in samples] == [[21, 24, 27], [0, 3, 6, 9, 12, 15, 18]]
    reader.close()


def test_empty_samples_are_read(tmp_path: Path) -> None:
    fmt = Hdf5Format(config(VARIABLE), 1)
    path = variable_file(tmp_path / "file.h5", [(0, 0), (0, 10), (10, 0)])
    assert fmt.inspect(path).num_samples == 3
    reader = fmt.open(path)
    assert read(fmt, reader, [0, 1, 2])["points:lengths"].tolist() == [0, 10, 0]
    assert read(fmt, reader, [2])["points"].shape == (0, 3)
    reader.close()


# --- damage ----------------------------------------------------------------------------------------------


def chunked_file(tmp_path: Path, **options: Any) -> tuple[Hdf5Format, Path]:
    fmt = Hdf5Format(config(GROUPS, chunk_bytes=2048, **options), 1)
    return fmt, write(fmt, tmp_path / "file.h5", 0, 12)


@pytest.mark.parametrize("compression", ["gzip", "lzf"])
def test_a_damaged_chunk_is_an_error_of_its_samples_alone(compression: str, tmp_path: Path) -> None:
    fmt, path = chunked_file(tmp_path, compression=compression, compressibility=0.5)
    with h5py.File(path, "r") as file:
        chunk = file["climate/data"].id.get_chunk_info_by_coord((5, 0, 0, 0))
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    fmt.inspect(path)
    reader = fmt.open(path)
    line = refusal(lambda: read(fmt, reader, [5]))
    assert f"{path}: rows 5 to 5 of /climate/data cannot be read" in line
    check_batch(fmt, read(fmt, reader, [4, 6]), [4, 6])
    reader.close()


@pytest.mark.parametrize("signature", [b"TREE", b"SNOD", b"HEAP"])
def test_damaged_index_nodes(signature: bytes, tmp_path: Path) -> None:
    fmt, path = chunked_file(tmp_path)
    content = path.read_bytes()
    assert signature in content
    path.write_bytes(content.replace(signature, bytes(byte ^ 1 for byte in signature)))

    def look() -> None:
        fmt.inspect(path)
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, range(12))

    assert str(path) in refusal(look)
    assert not is_open(path)


def test_flipped_bits_never_give_another_error(tmp_path: Path) -> None:
    """Flips bits of headers, heaps and B-trees: each file is read, or refused with a DataError.

    The seed is fixed: about one such file in a few thousand (a chunk shape that is damaged but still valid)
    sends HDF5 itself into an endless loop in ``H5Dread``.
    """
    fmt, path = chunked_file(tmp_path, compression="gzip", compressibility=0.5)
    content = path.read_bytes()
    with h5py.File(path, "r") as file:
        stored = set()
        for field in GROUPS:
            array = file[field.name].id
            for number in range(array.get_num_chunks()):
                chunk = array.get_chunk_info(number)
                stored.update(range(chunk.byte_offset, chunk.byte_offset + chunk.size))
    metadata = [at for at in range(len(content)) if at not in stored and content[at]]
    generator = random.Random(1)
    refused = 0
    for number in range(100):
        damaged = bytearray(content)
        for at in generator.sample(metadata, 3):
            damaged[at] ^= 1 << generator.randrange(8)
        # A file of its own each time: the library shares what it knows of a file that is still open.
        broken = tmp_path / f"{number}.h5"
        broken.write_bytes(damaged)
        with suppress(DataError):
            refused += 1
            fmt.inspect(broken)
            with closing(fmt.open(broken)) as reader:
                read(fmt, reader, range(12))
            refused -= 1
        assert not is_open(broken)
        broken.unlink()
    assert refused > 20


# --- part of a sample, and files in memory ------------------------------------------------------------------

# The four of sixteen channels that are used, and the labels.
CHANNELS = [
    FieldConfig("climate/data", "float32", [16, 128, 192], select=[0, 1, 2, 10]),
    FieldConfig("climate/labels", "float32", [128, 192]),
]
CHANNEL_BYTES = 128 * 192 * 4


def test_only_the_selected_part_is_delivered(tmp_path: Path) -> None:
    fmt, whole = (Hdf5Format(config([replace(CHANNELS[0], select=select)]), 1) for select in ([0, 1, 2, 10], []))
    assert fmt.specs()[0].shape == (4, 128, 192)
    assert fmt.sample_bytes() == 4 * CHANNEL_BYTES
    assert whole.sample_bytes() == fmt.stored_bytes() == whole.stored_bytes() == 16 * CHANNEL_BYTES
    path = write(fmt, tmp_path / "file.h5", 0, 3)
    assert path.read_bytes() == write(whole, tmp_path / "whole.h5", 0, 3).read_bytes()
    with closing(fmt.open(path)) as one, closing(whole.open(path)) as other:
        part, everything = read(fmt, one, [2, 0])["climate/data"], read(whole, other, [2, 0])["climate/data"]
    assert part.shape == (2, 4, 128, 192)
    assert part.equal(everything[:, [0, 1, 2, 10]])


PROGRAM = """
import pickle
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
reader = fmt.open(Path("file.h5").resolve())
for first, count in [(1, 1), (0, 3)]:
    reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0)
"""


def traced(tmp_path: Path, **options: Any) -> tuple[Path, list[tuple[str, str, int]]]:
    folder = tmp_path / "files"
    folder.mkdir()
    fmt = Hdf5Format(config(CHANNELS, **options), 1)
    path = write(fmt, folder / "file.h5", 0, 3)
    (folder / "format").write_bytes(pickle.dumps(fmt))
    return path, straced(PROGRAM, folder)["file.h5"]


@needs_strace
def test_the_core_driver_reads_the_whole_file_at_the_open(tmp_path: Path) -> None:
    path, calls = traced(tmp_path, driver="core")
    assert [(name, result) for name, _, result in calls if name in ("read", "pread64", "readv", "preadv", "mmap")] == [
        ("pread64", path.stat().st_size)
    ]
    assert [name for name, _, _ in calls].count("openat") == 1


@needs_strace
def test_of_a_contiguous_array_only_the_selected_bytes_are_read(tmp_path: Path) -> None:
    path, calls = traced(tmp_path)
    got = [(int(arguments.split(", ")[-1]), result) for name, arguments, result in calls if name == "pread64"]
    with h5py.File(path, "r") as file:
        data, labels = (file[field.name].id.get_offset() for field in CHANNELS)
    want = []
    for first, count in [(1, 1), (0, 3)]:
        for row in range(first, first + count):
            start = data + row * 16 * CHANNEL_BYTES
            want += [(start, 3 * CHANNEL_BYTES), (start + 10 * CHANNEL_BYTES, CHANNEL_BYTES)]
        want.append((labels + first * CHANNEL_BYTES, count * CHANNEL_BYTES))
    assert [call for call in got if call[1] >= CHANNEL_BYTES] == want
    assert sum(size for _, size in got if size < CHANNEL_BYTES) < 16384  # headers


# What applications write, on a file of one of our layouts.
#   hep       NERSC/DL-Parallel-IO, benchmarks/hep_cnn/networks/binary_classifier_tf.py, DataSet.load_next_file
#   cosmo     mlcommons/hpc, cosmoflow/prepare.py, read_hdf5
#   cam       mlcommons/hpc, deepcam/src/deepCam/data/cam_hdf5_dataset.py, CamDataset.__getitem__
#   kept, each  a torch Dataset that keeps the file open, and its arrays or not
PLAIN = """
import h5py, pickle, sys
import numpy as np
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer

def hep(f):
    n = f["data"].shape[0]
    return [f[name][0:n] for name in ("data", "label", "weight")]

def cosmo(f):
    return [f["x"][:], f["y"][:]]

def cam(f):
    return [f["climate/data"][..., list(range(16))], f["climate/labels_0"][...].astype(np.int64)]

def kept(f):
    data, label = f["data"], f["label"]
    return [(data[i], label[i]) for i in range(len(data))]

def each(f):
    return [(f["data"][i], f["label"][i]) for i in range(3)]

for name, once in ("hep", True), ("cosmo", True), ("cam", True), ("kept", False), ("each", False):
    with h5py.File(Path(f"{name}.plain.h5").resolve(), "r", rdcc_nbytes=1 << 20, rdcc_nslots=521) as f:
        locals()[name](f)
    fmt = pickle.loads(Path(name).read_bytes())
    reader = fmt.open(Path(f"{name}.h5").resolve())
    count = reader.num_samples
    for first, rows in [(0, count)] if once else [(i, 1) for i in range(count)]:
        reader.read(first, rows, BatchBuffer(fmt.specs(), range(rows)), 0)
    reader.close()
"""
EVENTS = [FieldConfig("data", "float32", [3, 64, 64]), FieldConfig("label"), FieldConfig("weight")]
VOLUME = [FieldConfig("x", "int16", [64, 64, 64, 4]), FieldConfig("y", shape=[4])]
CLIMATE = [FieldConfig("climate/data", shape=[96, 144, 16]), FieldConfig("climate/labels_0", shape=[96, 144])]
IMAGES = [FieldConfig("data", "uint8", [64, 1024], chunk=[2, 64, 1024]), FieldConfig("label", "int64")]
AS_APPLICATIONS: dict[str, tuple[int, DatasetConfig]] = {
    "hep": (9, config(EVENTS, reopen="array")),
    "cosmo": (1, config(VOLUME, reopen="array")),
    "cam": (1, config(CLIMATE, reopen="array")),
    "kept": (3, config(IMAGES, compression="gzip")),
    "each": (3, config(IMAGES, compression="gzip", reopen="array")),
}


@needs_strace
def test_the_calls_are_those_of_plain_h5py(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, (samples, options) in AS_APPLICATIONS.items():
        fmt = Hdf5Format(options, 1)
        for file in (f"{name}.h5", f"{name}.plain.h5"):
            write(fmt, folder / file, 0, samples)
        (folder / name).write_bytes(pickle.dumps(fmt))
    calls = straced(PLAIN, folder)
    for name in AS_APPLICATIONS:
        assert calls[f"{name}.h5"] == calls[f"{name}.plain.h5"], name
    # A chunk of two samples is read once, or for each of them.
    assert len(calls["each.h5"]) > len(calls["kept.h5"])
