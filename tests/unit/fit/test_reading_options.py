"""Reading options that follow from a program's calls on its files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from observed_calls import ObservedCall, array, observed

from dlio_torch.fit.data_set import amounts_of
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.recreation import Recreation, recreation


@pytest.fixture
def two_arrays(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    """An HDF5 file of three arrays, and the offset of the elements of each."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name in ("image", "mask", "unread"):
            file[name] = np.arange(8 * 256, dtype=np.float32).reshape(8, 256)
        return path, {name: file[name].id.get_offset() for name in file}


def hdf5(path: Path, *calls: ObservedCall) -> Recreation:
    return recreation("hdf5", inspect_path(str(path)).description, observed([path], calls, 8, array("0", 256)))


def read(path: Path, offset: int, sample: int, count: int = 1024, **more: int) -> ObservedCall:
    return ObservedCall("pread", str(path), offset, count, sample, **more)


def test_only_arrays_that_are_read_are_fields(two_arrays: tuple[Path, dict[str, int]]) -> None:
    path, offsets = two_arrays
    calls = [read(path, offsets[name] + 1024 * row, row) for row in range(8) for name in ("image", "mask")]
    result = hdf5(path, *calls)
    assert [field.name for field in result.fields] == ["image", "mask"]
    assert "image, mask" in result.evidence["fields"]
    assert "reopen" not in result.options


def test_a_file_that_is_opened_for_each_sample(two_arrays: tuple[Path, dict[str, int]]) -> None:
    path, offsets = two_arrays
    calls = [
        call
        for row in range(8)
        for call in (ObservedCall("open", str(path), sample=row), read(path, offsets["image"] + 1024 * row, row))
    ]
    result = hdf5(path, *calls)
    assert result.options["reopen"] == "file"
    assert result.evidence["reopen"] == "1.00 opens for each sample"


def test_an_array_whose_header_is_read_after_elements_of_another(two_arrays: tuple[Path, dict[str, int]]) -> None:
    path, offsets = two_arrays
    calls = [read(path, 0, 0, 512), read(path, offsets["image"], 0), read(path, 800, 0, 512)]
    result = hdf5(path, *calls, read(path, offsets["mask"], 0))
    assert result.options["reopen"] == "array"


def test_a_file_that_is_read_whole_at_its_open(two_arrays: tuple[Path, dict[str, int]]) -> None:
    path, _ = two_arrays
    assert hdf5(path, read(path, 0, -1, path.stat().st_size)).options["driver"] == "core"


def test_chunks_that_are_read_again_are_of_an_array_that_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("x", data=np.zeros((64, 256), np.float32), chunks=(8, 256))
        offsets = [stored.id.get_chunk_info(number).byte_offset for number in range(8)]
    again = [read(path, offsets[row // 8], row, 8192) for row in range(64)]
    once = [read(path, offset, 8 * number, 8192) for number, offset in enumerate(offsets)]
    results = [
        recreation("hdf5", inspect_path(str(path)).description, observed([path], calls, 64, array("0", 256)))
        for calls in (again, once)
    ]
    assert [result.options.get("reopen", "none") for result in results] == ["array", "none"]


def test_parquet_columns_and_a_file_that_is_opened_for_each_row_group(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    columns = {name: np.arange(400) * number for number, name in enumerate(("a", "b", "c"))}
    pq.write_table(pa.table(columns), path, row_group_size=100)
    meta, name = pq.ParquetFile(path).metadata, str(path)

    def group(number: int) -> ObservedCall:
        chunks = [meta.row_group(number).column(column) for column in (0, 1)]
        begin = chunks[0].dictionary_page_offset or chunks[0].data_page_offset
        return ObservedCall("pread", name, begin, sum(c.total_compressed_size for c in chunks), batch=number, tid=2)

    footer = ObservedCall("pread", name, path.stat().st_size - 100, 100)
    opened = [ObservedCall("open", name), footer]
    described = inspect_path(name).description
    each = recreation("parquet", described, observed([path], [c for n in range(4) for c in (*opened, group(n))]))
    kept = recreation("parquet", described, observed([path], [*opened, *map(group, range(4))]))
    assert [field.name for field in each.fields] == ["a", "b"]
    assert each.options["reopen"] == "row_group"
    assert "reopen" not in kept.options
    assert "the column c is not generated" in each.differences


def test_the_buffer_of_a_file_is_the_size_of_its_first_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(1 << 17, np.float32))
    usual = path.stat().st_blksize
    for size, option in ((usual, {}), (1 << 18, {"buffer_bytes": 1 << 18})):
        calls = [ObservedCall("open", str(path)), ObservedCall("read", str(path), 0, size)]
        assert observed([path], calls).buffer_option() == option


@pytest.mark.parametrize(
    ("samples", "files", "per_file", "amounts"),
    [
        (256, 8, None, (8, 32)),
        (300, 4, None, (4, 75)),
        (96, 96, 1, (96, 1)),
        (3, 8, None, (3, 1)),
        (96, 10, None, (10, 10)),
    ],
)
def test_files_and_samples_of_each(samples: int, files: int, per_file: int | None, amounts: tuple[int, int]) -> None:
    assert amounts_of(samples, files, per_file) == amounts
