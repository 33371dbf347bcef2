"""Arrow IPC files: written deterministically, read as the library reads them, and by their extents."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_fields import FIELDS

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.arrow.format import ArrowFormat
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.core.layout import Extents
from dlio_torch.formats.testing.contract import FormatContract, read, refusal, write

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def options(**values: Any) -> DatasetConfig:
    return DatasetConfig(format="arrow", fields=[*FIELDS, FieldConfig("flag", "bool", [])], arrow=ArrowConfig(**values))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "one_batch": options(),
        "batches_of_three": options(batch_rows=3),
        "read": options(batch_rows=3, memory_map=False),
        "file": options(batch_rows=3, ipc="file"),
        "file_read": options(ipc="file", memory_map=False),
        "lz4": options(batch_rows=4, compression="lz4", compressibility=0.5),
        "zstd": options(ipc="file", compression="zstd"),
    }


def stored(path: Path, table: Any, *, batch: int = 2, ipc: str = "stream") -> Path:
    """A file of another writer."""
    opener = pa.ipc.new_file if ipc == "file" else pa.ipc.new_stream
    with opener(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)
    return path


def config(*fields: FieldConfig, **values: Any) -> DatasetConfig:
    return DatasetConfig(format="arrow", fields=list(fields), arrow=ArrowConfig(**values))


TEXT = FieldConfig("v", "uint8", [], length_mean=3)
NESTED = pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]])
COLUMNS: dict[str, tuple[FieldConfig, Any, list[Any]]] = {
    "string": (TEXT, pa.array(["é", "", "abc"]), [b"\xc3\xa9", b"", b"abc"]),
    "large_string": (TEXT, pa.array(["é", "", "abc"], pa.large_string()), [b"\xc3\xa9", b"", b"abc"]),
    "string_view": (TEXT, pa.array(["é", "", "x" * 20], pa.string_view()), [b"\xc3\xa9", b"", b"x" * 20]),
    "binary": (TEXT, pa.array([b"a", b"bc", b""]), [b"a", b"bc", b""]),
    "fixed_size_binary": (
        FieldConfig("v", "uint8", [2]),
        pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
        [b"ab", b"cd", b"ef"],
    ),
    "category": (TEXT, pa.array(["b", "a", "b"]).dictionary_encode(), [b"b", b"a", b"b"]),
    "encoded_image": (
        TEXT,
        pa.array([{"bytes": b"x", "path": None}, {"bytes": b"yy", "path": "p"}, {"bytes": b"", "path": None}]),
        [b"x", b"yy", b""],
    ),
    "list": (FieldConfig("v", "int64", [], length_mean=2), pa.array([[1], [], [2, 3]]), [[1], [], [2, 3]]),
    "rows": (FieldConfig("v", "int64", [2], length_mean=2), NESTED, NESTED.to_pylist()),
    "matrix": (FieldConfig("v", "int64", [2, 2]), NESTED, NESTED.to_pylist()),
    "fixed_size_lists": (
        FieldConfig("v", "int64", [2, 2]),
        NESTED.cast(pa.list_(pa.list_(pa.int64(), 2), 2)),
        NESTED.to_pylist(),
    ),
    "tensor": (
        FieldConfig("v", "int64", [2, 2]),
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int64(), [2, 2]), pa.array([[1, 2, 3, 4]] * 3, pa.list_(pa.int64(), 4))
        ),
        [[[1, 2], [3, 4]]] * 3,
    ),
    "bool": (FieldConfig("v", "bool", []), pa.array([True, False, True]), [True, False, True]),
    "bool_lists": (
        FieldConfig("v", "bool", [], length_mean=1),
        pa.array([[True], [], [False, True]]),
        [[True], [], [False, True]],
    ),
}


@pytest.mark.parametrize("ipc", ["stream", "file"])
@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_other_writers_are_read(column: str, ipc: str, tmp_path: Path) -> None:
    field, array, expected = COLUMNS[column]
    path = stored(tmp_path / "a.arrow", pa.table({"other": ["x", "y", "z"], "v": array}), ipc=ipc)
    fmt = ArrowFormat(config(field, ipc=ipc), 1)
    with closing(fmt.open(path)) as reader:
        streamed = [sample["v"] for sample in fmt.stream(reader)]
        batch = read(fmt, reader, [2, 1, 0])
    assert [as_stored(rows) for rows in streamed] == expected
    flat = [
        np.frombuffer(e, np.uint8) if isinstance(e, bytes) else np.array(e, field.dtype) for e in reversed(expected)
    ]
    if field.length_mean:
        want = np.concatenate([rows.reshape(-1, *field.shape) for rows in flat])
        assert batch["v:lengths"].tolist() == [len(rows) for rows in flat]
    else:
        want = np.stack(flat)
    np.testing.assert_array_equal(batch["v"].numpy(), want)


def as_stored(rows: Any) -> Any:
    return rows.tobytes() if rows.dtype == np.uint8 else rows.tolist()


@pytest.mark.parametrize("column", COLUMNS)
def test_extents_are_those_of_the_cells(column: str, tmp_path: Path) -> None:
    field, array, _ = COLUMNS[column]
    path = stored(tmp_path / "a.arrow", pa.table({"v": array}))
    fmt = ArrowFormat(config(field), 1)
    with closing(fmt.open(path)) as reader:
        samples = [sample["v"].tobytes() for sample in fmt.stream(reader)]
    layout = fmt.layout(path).arrays["v"]
    rows = np.arange(3)
    assert layout.sizes(rows).tolist() == [len(sample) for sample in samples]
    plan = layout.plan(rows, np.zeros(3, np.int64))
    in_memory = column.startswith("bool") or column == "string_view"
    assert isinstance(plan, Extents) != in_memory
    if isinstance(plan, Extents):
        content = path.read_bytes()
        pairs = zip(plan.offsets.tolist(), plan.lengths.tolist(), strict=True)
        assert [content[offset : offset + length] for offset, length in pairs] == samples


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), min_size=1, max_size=12),
    st.integers(1, 5),
    st.data(),
)
def test_any_run_of_lists_is_read(cells: list[list[int]], batch: int, data: st.DataObject) -> None:
    import tempfile

    field = FieldConfig("v", "int32", [], length_mean=2)
    fmt = ArrowFormat(config(field), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = stored(Path(folder) / "a.arrow", pa.table({"v": pa.array(cells, pa.list_(pa.int32()))}), batch=batch)
        with closing(fmt.open(path)) as reader:
            rows = data.draw(st.lists(st.integers(0, len(cells) - 1), min_size=1))
            got = read(fmt, reader, rows)
    assert got["v"].tolist() == [value for row in rows for value in cells[row]]


@pytest.mark.parametrize(
    ("field", "array", "words"),
    [
        (FieldConfig("v", "int32"), pa.array([1, 2]), "column 'v' is int64, but dataset.fields expect int32"),
        (FieldConfig("v", "int64"), pa.array([1, None]), "column 'v' has empty cells (from row 1 on)"),
        (FieldConfig("v", "int64", [3]), pa.array([[1, 2, 3], [1, 2]]), "has cells whose length is not 3 elements"),
        (FieldConfig("v", "int64", [1, 2]), pa.array([[[1, 2]], [[1]]]), "inner lists do not have 2 elements each"),
        (FieldConfig("v", "int64"), pa.array([0, 1], pa.timestamp("ns")), "no tensor holds times; store them as"),
        (FieldConfig("v", "uint8", length_mean=1), pa.array([["a"], ["b"]]), "lists of string: store one value in a"),
        (FieldConfig("v", "int64"), pa.array([{"a": 1}, {"a": 2}]), "a struct: store its members (a) as columns"),
        (FieldConfig("w", "int64"), pa.array([1, 2]), "has no column 'w'; its columns are: v"),
    ],
)
def test_columns_that_no_tensor_holds_are_refused(field: FieldConfig, array: Any, words: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "a.arrow", pa.table({"v": array}))
    fmt = ArrowFormat(config(field), 1)

    def attempt() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0, 1])

    line = refusal(attempt)
    assert words in line
    assert str(path) in line


def test_an_empty_cell_that_is_not_read_does_no_harm(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.arrow", pa.table({"v": pa.array([1, None, 3])}), batch=3)
    fmt = ArrowFormat(config(FieldConfig("v", "int64")), 1)
    with closing(fmt.open(path)) as reader:
        assert read(fmt, reader, [2, 0])["v"].tolist() == [3, 1]


def test_generated_files_are_what_other_readers_expect(tmp_path: Path) -> None:
    fmt = ArrowFormat(options(batch_rows=4), 3)
    table = pa.ipc.open_stream(pa.memory_map(str(write(fmt, tmp_path / "a.arrow", 0, 10)))).read_all()
    assert [len(batch) for batch in table.to_batches()] == [4, 4, 2]
    assert table.schema.field("image").type == pa.list_(pa.float32(), 192)
    assert table.schema.field("jpeg").type == pa.binary()
    expected = fmt.expected(9)
    assert table["jpeg"][9].as_py() == expected["jpeg"].tobytes()
    assert table["tokens"][9].as_py() == expected["tokens"].tolist()
    np.testing.assert_array_equal(np.array(table["points"][9].as_py()).reshape(-1, 3), expected["points"])


def test_a_batch_beyond_32_bit_offsets_is_refused(tmp_path: Path) -> None:
    fmt = ArrowFormat(config(FieldConfig("v", "uint8", [], length_mean=3e9)), 1)
    with pytest.raises(ConfigError, match=r"dataset\.arrow\.batch_rows=1000: v has \d+ elements in a record batch"):
        fmt.check_elements("v", 3_000_000_000)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.ipc", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[arrow\]'"):
        ArrowFormat(options(), 1)
