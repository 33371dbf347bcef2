"""CSV: text that a parser reads back bit by bit, read in pieces of a set size as pandas 1 and 2 did."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from strace import OPENS, READS, Call, need_strace, trace

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.csv.format import CsvFormat
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.formats.testing.contract import FormatContract, check_batch, is_open, read, refusal, write

FIELDS = [
    FieldConfig("label", "int64", []),
    FieldConfig("expression", "float32", [40]),
    FieldConfig("flags", "bool", [2, 3]),
    FieldConfig("wide", "float64", [3, 5]),
    FieldConfig("half", "float16", [4]),
    FieldConfig("bytes", "uint8", [7]),
]


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "whole": DatasetConfig(format="csv", fields=FIELDS),
        "chunks": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(chunk_rows=3)),
        "small_pieces": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(read_bytes=100)),
        "header": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(header=True, delimiter=";")),
        "fractional": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(value_chars=8.2383)),
        "shortest": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(value_chars=3)),
        "longest": DatasetConfig(format="csv", fields=FIELDS, csv=CsvConfig(value_chars=16)),
    }


def fmt_of(fields: list[FieldConfig] = FIELDS, seed: int = 5, **options: float) -> CsvFormat:
    return CsvFormat(DatasetConfig(format="csv", fields=fields, csv=CsvConfig(**options)), seed)


# --- text ---


NT3 = [FieldConfig("label", "int64", []), FieldConfig("expression", "float32", [60483])]


def test_the_published_row_length_of_nt3(tmp_path: Path) -> None:
    """CANDLE NT3: 625,815,725 bytes in 1,120 rows of 60,484 columns."""
    published = 625_815_725 / 1120
    fmt = fmt_of(NT3, value_chars=8.2383)
    assert fmt.stored_bytes() == pytest.approx(published, rel=0.0005)
    lines = write(fmt, tmp_path / "a.csv", 0, 12).read_bytes().splitlines(keepends=True)
    assert {line.count(b",") for line in lines} == {60483}
    assert sum(map(len, lines)) / 12 == pytest.approx(published, rel=0.001)


@pytest.mark.parametrize("width", [3, 4.5, 8, 8.75, 16])
def test_numbers_are_as_wide_as_asked_for(tmp_path: Path, width: float) -> None:
    fmt = fmt_of([FieldConfig("x", "float64", [4000])], value_chars=width)
    (line,) = write(fmt, tmp_path / "a.csv", 0, 1).read_text().splitlines()
    widths = [len(text) for text in line.split(",")]
    assert set(widths) <= {int(width), int(width) + 1}
    assert np.mean(widths) == pytest.approx(width, abs=0.05)


def test_later_options_leave_the_names_of_data_sets_alone() -> None:
    """The name of a data set is made of its layout options, so a default must not appear among them."""
    plain = fmt_of(value_chars=8.5).layout_options()
    assert plain.keys() == {"format", "fields", "value_chars"}
    assert fmt_of(value_chars=8.5, header=False, delimiter=",", threads=3).layout_options() == plain
    assert fmt_of(value_chars=8.5, header=True).layout_options() == {**plain, "header": True}
    assert fmt_of(value_chars=8.5, delimiter=";").layout_options() == {**plain, "delimiter": ";"}


def test_every_parser_reads_what_was_written(tmp_path: Path) -> None:
    fmt = fmt_of([FieldConfig("x", "float64", [500])], value_chars=15.5)
    path = write(fmt, tmp_path / "a.csv", 3, 4)
    frame = pd.read_csv(path, header=None)
    for row, line in enumerate(path.read_text().splitlines()):
        want = fmt.expected(3 + row)["x"]
        np.testing.assert_array_equal(frame.to_numpy()[row], want)
        np.testing.assert_array_equal([float(text) for text in line.split(",")], want)


def test_values_are_spread_over_what_the_text_can_hold() -> None:
    values = fmt_of([FieldConfig("x", "float32", [20000]), FieldConfig("label", "int64", [20000])]).expected(0)
    assert (values["x"].min() < 0.01, values["x"].max() > 9.99) == (True, True)
    assert np.unique(values["label"]).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        (FIELDS, {"value_chars": 17.0}, "dataset.csv.value_chars=17.0"),
        (FIELDS, {"value_chars": 2.0}, "dataset.csv.value_chars=2.0"),
        ([FieldConfig("x", length_mean=3)], {}, "x sets length_mean"),
    ],
)
def test_what_a_table_cannot_hold(fields: list[FieldConfig], options: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fmt_of(fields, **options)


# --- reading ---


def test_a_stream_gives_every_sample_in_order(tmp_path: Path) -> None:
    for rows in (0, 3):
        fmt = fmt_of(chunk_rows=rows)
        with closing(fmt.open(write(fmt, tmp_path / "a.csv", 4, 8))) as reader:
            # Twice; then the rows as if nothing had been streamed.
            for _ in range(2):
                samples = list(fmt.stream(reader))
                assert [fmt.differences(4 + i, sample) for i, sample in enumerate(samples)] == [None] * 8
                assert all(array.flags.owndata for array in samples[0].values())
            check_batch(fmt, read(fmt, reader, [7, 0]), [11, 4])
            assert reader.num_samples == 8
            samples = list(fmt.stream(reader))
            assert len(samples) == 8


def test_a_stream_that_is_abandoned_closes_the_file(tmp_path: Path) -> None:
    fmt = fmt_of(chunk_rows=2)
    path = write(fmt, tmp_path / "a.csv", 0, 8)
    reader = fmt.open(path)
    stream = fmt.stream(reader)
    next(stream)
    assert is_open(path)
    stream.close()  # type: ignore[attr-defined]
    assert not is_open(path)
    reader.close()


def test_chunks_are_parsed_as_far_as_rows_are_asked_for(tmp_path: Path) -> None:
    fmt = fmt_of(chunk_rows=2, read_bytes=64)
    path = write(fmt, tmp_path / "a.csv", 0, 8)
    with path.open("ab") as file:
        file.write(b"damaged\n")
    with closing(fmt.open(path)) as reader:
        check_batch(fmt, read(fmt, reader, [5]), [5])
        assert "row 8" in refusal(lambda: read(fmt, reader, [8]))


def test_a_whole_file_is_closed_as_soon_as_it_is_parsed(tmp_path: Path) -> None:
    fmt = fmt_of()
    path = write(fmt, tmp_path / "a.csv", 0, 8)
    with closing(fmt.open(path)) as reader:
        assert not is_open(path)
        check_batch(fmt, read(fmt, reader, [5]), [5])


SMALL = [FieldConfig("label", "int64", []), FieldConfig("x", "float32", [2])]
GOOD = "1,0.5,1.5\n0,2.5,3.5\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no rows"),
        ("\n\n", "holds no rows"),
        (GOOD + "1,2.5\n", "row 2 has no value (a short row or an empty field) in column 2"),
        (GOOD + "1,,2.5\n", "row 2 has no value (a short row or an empty field) in column 1"),
        (GOOD + "1,2.5,3.5,4.5\n", "row 2 has 4 columns, but dataset.fields describe 3"),
        ("1,2.5,3.5,4.5\n" + GOOD, "row 0 has 4 columns, but dataset.fields describe 3"),
        ("1,2.5\n" + GOOD, "row 0 has 2 columns, but dataset.fields describe 3"),
        ("1,2.5\n", "row 0 has 2 columns, but dataset.fields describe 3"),
        (GOOD + "1,abc,2.5\n", "row 2 has 'abc', which is not a number, in column 1"),
        ("label,a,b\n" + GOOD, "row 0 has 'label', which is not a number, in column 0"),
        (GOOD + "1.5,2.5,2.5\n", "row 2 has 1.5 in column 0, which is not of type int64 as field label requires"),
        ("True,0.5,1.5\n", "row 0 has 'True', which is not a number, in column 0"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [0, 1, 2])
def test_a_damaged_file_names_the_row(tmp_path: Path, text: str, words: str, chunk_rows: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    fmt = fmt_of(SMALL, chunk_rows=chunk_rows)

    def read_all() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, range(reader.num_samples or 0))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = refusal(read_all)
    assert line.startswith(str(path))
    assert words in line
    assert not is_open(path)


@pytest.mark.parametrize(
    "text", [GOOD, GOOD.rstrip("\n"), GOOD.replace("\n", "\r\n"), GOOD + "\n\n", GOOD.replace(",", " ,")]
)
def test_other_writers_habits(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, newline="")
    fmt = fmt_of(SMALL)
    assert fmt.inspect(path).num_samples == 2
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [1, 0])
    assert batch["label"].tolist() == [0, 1]
    assert batch["x"].tolist() == [[2.5, 3.5], [0.5, 1.5]]


def test_large_integers_beside_decimal_numbers_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("9007199254740993,0.5,1.5\n")
    fmt = fmt_of(SMALL)
    with closing(fmt.open(path)) as reader:
        assert read(fmt, reader, [0])["label"].tolist() == [9007199254740993]


# --- system calls ---


PROGRAM = """
import pickle, sys
from pathlib import Path
from dlio_torch.formats.testing.contract import read
for fmt, path, count in pickle.loads(Path(sys.argv[1]).read_bytes()):
    reader = fmt.open(path)
    read(fmt, reader, [3, 1])
    assert not count or reader.num_samples == 30
    reader.close()
"""

PIECE = 262144
WIDE = [FieldConfig("label", "int64", []), FieldConfig("x", "float32", [4000])]
CASES = {
    "whole": fmt_of(WIDE),
    "chunks": fmt_of(WIDE, chunk_rows=7),
    "other_pieces": fmt_of(WIDE, read_bytes=100_000),
    "begun": fmt_of(WIDE, chunk_rows=2, read_bytes=20_000),
}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[Call]]]:
    """Of each case the size of its file, and the calls on it."""
    need_strace()
    folder = tmp_path_factory.mktemp("traced")
    paths = {name: write(fmt, folder / f"{name}.csv", 0, 30) for name, fmt in CASES.items()}
    work = [(fmt, paths[name], name != "begun") for name, fmt in CASES.items()]
    (folder / "work").write_bytes(pickle.dumps(work))
    calls = trace([sys.executable, "-c", PROGRAM, folder / "work"], folder / "log", cwd=folder, env=os.environ)
    return {
        name: (path.stat().st_size, [call for call in calls if call.path == str(path)]) for name, path in paths.items()
    }


@pytest.mark.parametrize(("case", "piece"), [("whole", PIECE), ("chunks", PIECE), ("other_pieces", 100_000)])
def test_pieces_are_read_one_after_another(traced: dict[str, tuple[int, list[Call]]], case: str, piece: int) -> None:
    size, calls = traced[case]
    assert [call.name for call in calls if call.name in OPENS] == ["openat"]
    # As pandas 1.5 and 2.2: whole pieces, the rest, and reads behind the end; no positions are set.
    reads = [call for call in calls if call.name in READS]
    assert {call.name for call in reads} == {"read"}
    sizes = [call.result for call in reads if call.result]
    assert sizes == [piece] * (size // piece) + [size % piece]
    assert {int(call.arguments.rsplit(", ", 1)[1]) for call in reads} == {piece}
    assert 1 <= len(reads) - len(sizes) <= 2
    moves = [call for call in calls if call.name == "lseek" and not call.arguments.endswith("0, SEEK_CUR")]
    assert moves == []
    assert calls[-1].name == "close"


def test_chunks_leave_the_rest_of_the_file_unread(traced: dict[str, tuple[int, list[Call]]]) -> None:
    size, calls = traced["begun"]
    assert 0 < sum(call.result for call in calls if call.name in READS) < size / 3
