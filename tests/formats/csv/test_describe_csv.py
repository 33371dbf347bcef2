"""Existing text tables: delimiter, names and types of columns from the first rows; what cannot be read is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from existing_samples import read_existing, settings_of
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.config.compose import compose
from dlio_torch.data.engines.registry import format_of
from dlio_torch.errors import DataError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.csv.field_names import field_name

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_of_pandas(index: bool, separator: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = pd.DataFrame({"label": np.arange(9), "x/y": RNG.random(9), "index": RNG.random(9)})
    frame.to_csv(path, index=index, sep=separator)
    names = ["label", "x_y", "column index"]
    samples = read_existing(path)
    assert len(samples) == 9
    assert list(samples[0]) == [*(["column_0"] if index else []), *names]
    for name, column in zip(names, frame.columns, strict=True):
        assert np.array_equal([sample[name] for sample in samples], frame[column])
    engine = read_existing(path, "loader.engine=decoupled")
    assert [sample["x_y"] for sample in engine] == [sample["x_y"] for sample in samples]


def test_columns_without_names(tmp_path: Path) -> None:
    values = RNG.random((6, 20))
    np.savetxt(tmp_path / "a.csv", values, delimiter=",")
    assert np.array_equal([sample["data"] for sample in read_existing(tmp_path / "a.csv")], values)
    pd.DataFrame(values).to_csv(tmp_path / "b.csv")  # an empty cell, and 0, 1, 2 ...
    samples = read_existing(tmp_path / "b.csv")
    assert np.array_equal([sample["data"] for sample in samples], values)
    (tmp_path / "c.csv").write_text("".join(f"{number},{number / 8}\n" for number in range(9)))
    assert [field["dtype"] for field in settings_of(tmp_path / "c.csv")["fields"]] == ["int64", "float64"]


def test_a_first_line_that_counts_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame(RNG.random((6, 3))).to_csv(path, index=False)
    (question,) = inspect_path(str(path)).description.questions
    assert question.setting == "dataset.csv.header=true"
    assert len(read_existing(path, question.setting)) == 6
    assert len(read_existing(path, "dataset.csv.header=false")) == 7


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
def test_columns_that_cannot_be_read_are_named(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = pd.DataFrame({"id": range(9), "name": ['a, "b"'] * 9, "x": RNG.random(9), "ok": [True, False, True] * 3})
    frame["gaps"] = [1.0, np.nan, 2.0] * 3
    frame["nothing"] = np.nan
    frame.to_csv(path, index=False)
    description = inspect_path(str(path)).description
    assert {array.name: array.note.split(":")[0].split(",")[0] for array in description.arrays} == {
        "id": "",
        "name": "text",
        "x": "",
        "ok": "holds words",
        "gaps": "has rows without a value",
        "nothing": "has no values",
    }
    assert any("quoted" in note for note in description.notes)
    samples = read_existing(path, f"loader.engine={engine}")
    assert [int(sample["id"]) for sample in samples] == list(range(9))
    assert np.array_equal([sample["x"] for sample in samples], frame["x"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no rows"),
        (b"\n\n", "holds no rows"),
        (b"a,b\n", "holds no rows: its only line names columns"),
        (b",a,b", "holds no rows: its only line names columns"),
        (b",0,1\n", "holds no rows: its only line names columns"),
        (b"a,b\nc,d\n", "no column that can be read"),
        (bytes(range(256)), "zero bytes"),
        (b"\xff\xfe1,2\n", "not a text file in UTF-8"),
        (b"1,2\n1,2,3\n1\n1,2,3,4\n", "different numbers of columns"),
    ],
)
def test_what_is_no_table(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        inspect_path(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_later_row_of_another_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2\n" * 1500 + "1,2.5\n")
    with pytest.raises(DataError, match=r"row 1500 has 2\.5 in column 1, which is not of type int64"):
        read_existing(path)


@given(st.lists(st.text(max_size=6)))
def test_names_of_fields_differ(columns: list[str]) -> None:
    used: set[str] = set()
    names = [field_name(column, used) for column in columns]
    assert len(set(names)) == len(columns)
    assert all(name and "/" not in name and name != "index" for name in names)


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
def test_a_position_beyond_the_file_is_named(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1.5\n2.5\n")
    with pytest.raises(DataError) as caught:
        read_existing(path, "dataset.csv.columns=[3]", f"loader.engine={engine}")
    assert caught.value.message == f"{path} has 1 column, but dataset.csv.columns names position 3"


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
def test_a_file_of_names_without_rows_among_others(engine: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2.5\n3,4.5\n")
    (tmp_path / "b.csv").write_text("a,b\n")
    words = rf"{tmp_path / 'b.csv'} holds no rows;"
    with pytest.raises(DataError, match=words):
        read_existing(tmp_path, f"loader.engine={engine}")
    with pytest.raises(DataError, match=words):
        read_existing(tmp_path, f"loader.engine={engine}", "dataset.csv.chunk_rows=1")
    fmt = format_of(compose([f"dataset.path={tmp_path}", f"loader.engine={engine}"]).config)
    with pytest.raises(DataError, match=words):
        fmt.layout(tmp_path / "b.csv")
