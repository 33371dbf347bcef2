"""Columns of Parquet files that others wrote: what is read, how, and what the description says of the rest."""

from __future__ import annotations

import decimal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import MissingPackageError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.parquet.describe import describe
from dlio_torch.formats.parquet.format import ParquetFormat
from dlio_torch.formats.parquet.options import ParquetConfig
from dlio_torch.formats.parquet.reader import rows_of
from dlio_torch.formats.testing.contract import read, refusal

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROWS = 1000
WAYS: dict[str, dict[str, Any]] = {
    "row_group": {},
    "single_row": {"read": "single_row"},
    "table": {"read": "table"},
    "batches": {"batch_rows": 70},
    "mapped": {"memory_map": True},
    "ahead": {"pre_buffer": True, "use_threads": True},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    frame = pd.DataFrame(
        {
            "text": [f"zeile {i} é" * (i % 3) for i in range(ROWS)],
            "number": np.arange(ROWS),
            "dotted.name": np.linspace(0, 1, ROWS, dtype=np.float32),
            "truth": [i % 2 == 0 for i in range(ROWS)],
            "rare": pd.array([None if i % 100 == 7 else i for i in range(ROWS)], dtype="Int64"),
            "time": pd.date_range("2020-01-01", periods=ROWS, freq="h"),
            "category": pd.Categorical([("a", "bbb")[i % 2] for i in range(ROWS)]),
            "list": [list(range(i % 5)) for i in range(ROWS)],
            "exact": [decimal.Decimal("1.5")] * ROWS,
            "record": [{"a": i, "b": "x"} for i in range(ROWS)],
            "image": [{"bytes": bytes([i % 256]) * (i % 4), "path": None} for i in range(ROWS)],
        }
    )
    frame.iloc[::-1].to_parquet(path, row_group_size=300)
    return path


def test_the_description_names_every_column(table: Path) -> None:
    description = describe(table)
    notes = {array.name: array.note for array in description.arrays}
    assert notes.pop("rare") == "10 empty cells, which no tensor holds: fill them to read the column"
    assert "no tensor holds times; store them as int64" in notes.pop("time")
    assert "no tensor holds decimals" in notes.pop("exact")
    assert notes.pop("record") == "a struct: store its members (a, b) as columns of their own"
    assert set(notes.values()) == {""}
    assert description.samples == ROWS
    assert description.details["row_groups"] == 4
    fields = {field.name: field for field in description.fields}
    assert {name: field.dtype for name, field in fields.items()} == {
        "text": "uint8",
        "number": "int64",
        "dotted.name": "float32",
        "truth": "bool",
        "category": "uint8",
        "list": "int64",
        "image": "uint8",
    }
    assert fields["list"].length_mean == pytest.approx(2, abs=0.1)
    meta = pq.ParquetFile(table).metadata
    stored = {array.name: array.stored_bytes or 0 for array in description.arrays}
    chunks = [meta.row_group(i).column(j) for i in range(4) for j in range(meta.num_columns)]
    assert sum(stored.values()) == sum(chunk.total_compressed_size for chunk in chunks)
    assert all(stored.values())
    assert {array.compression for array in description.arrays} == {"snappy"}


def test_the_index_of_a_frame_is_left_out(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2]}, index=[5, 3]).to_parquet(tmp_path / "a.parquet")
    description = describe(tmp_path / "a.parquet")
    assert [field.name for field in description.fields] == ["a"]
    assert description.arrays[1].note == "the index of the data frame"


@pytest.mark.parametrize("way", WAYS)
def test_samples_are_those_of_pandas(way: str, table: Path) -> None:
    fields = list(inspect_path(str(table)).description.fields)
    fmt = ParquetFormat(DatasetConfig(format="parquet", fields=fields, parquet=ParquetConfig(**WAYS[way])), 1)
    frame = pd.read_parquet(table)
    with closing(fmt.open(table)) as reader:
        streamed = list(fmt.stream(reader))
        batch = read(fmt, reader, [999, 0, 301, 300])
    assert len(streamed) == ROWS
    for row in range(0, ROWS, 7):
        sample, stored = streamed[row], frame.iloc[row]
        assert sample["text"].tobytes().decode() == stored["text"]
        assert sample["number"] == stored["number"]
        assert sample["dotted.name"] == stored["dotted.name"]
        assert sample["truth"] == stored["truth"]
        assert sample["category"].tobytes().decode() == stored["category"]
        assert sample["list"].tolist() == list(stored["list"])
        assert sample["image"].tobytes() == stored["image"]["bytes"]
    assert batch["number"].tolist() == [0, 999, 698, 699]
    assert batch["list:lengths"].tolist() == [number % 5 for number in batch["number"].tolist()]


@pytest.mark.parametrize("way", ["row_group", "table"])
def test_a_missing_column_is_named(way: str, table: Path) -> None:
    fields = [FieldConfig("nothing", "int64", [])]
    fmt = ParquetFormat(DatasetConfig(format="parquet", fields=fields, parquet=ParquetConfig(**WAYS[way])), 1)
    assert "has no column 'nothing'; its columns are: text, number" in refusal(lambda: fmt.open(table))


def test_an_empty_cell_is_named_with_its_rows(table: Path) -> None:
    fields = [FieldConfig("rare", "int64", [])]
    fmt = ParquetFormat(DatasetConfig(format="parquet", fields=fields), 1)
    with closing(fmt.open(table)) as reader:
        line = refusal(lambda: read(fmt, reader, [400]))
    assert "column 'rare' has empty cells (from row 300 on)" in line
    assert "or remove the column from dataset.fields" in line


def test_strings_beyond_32_bit_offsets_are_joined(tmp_path: Path) -> None:
    """Pyarrow gives a column in several chunks if its strings have more than 2 GiB."""
    fields = [FieldConfig("t", "uint8", [], length_mean=1)]
    spec = ParquetFormat(DatasetConfig(format="parquet", fields=fields), 1).specs()[0]
    column = pa.chunked_array([["a", "bc"], [], ["", "def"]])
    rows = rows_of(column, spec, tmp_path, 0)
    assert [rows.cell(i).tobytes() for i in range(rows.count)] == [b"a", b"bc", b"", b"def"]


def test_without_pyarrow_the_extra_is_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[parquet\]'"):
        inspect_path(str(table))
