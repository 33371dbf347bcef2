"""Text tables that are mapped: the same calls as pandas 3.1, whatever version is installed, and the same rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from strace import need_strace, trace

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig
from dlio_torch.environment.cores import whole_cores
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.registry import create, facts
from dlio_torch.formats.csv.mapped import MAPPED_BYTES, parts_of
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.formats.testing.contract import check_batch, read, refusal, write

VERSION = tuple(map(int, re.findall(r"\d+", pd.__version__)[:2]))
maps = pytest.mark.skipif(VERSION < (3, 1), reason=f"pandas {pd.__version__} does not map CSV files, pandas 3.1 does")

OURS = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.csv.options import CsvConfig
for name, columns, header in (entry.split(":") for entry in sys.argv[1:]):
    fields, options = [FieldConfig("a", "float64", [int(columns)])], CsvConfig(reader="mapped", header=header == "1")
    create(DatasetConfig(format="csv", fields=fields, csv=options), 1).open(Path(name).resolve()).close()
"""

PANDAS = """
import os, sys
import pandas as pd
for name, columns, header in (entry.split(":") for entry in sys.argv[1:]):
    pd.read_csv(os.path.realpath(name), header=0 if header == "1" else None)
"""

# Name -> rows, columns, characters of a value, whether the first line holds names.
FILES = {
    "long_rows": (700, 1400, 10, False),  # two parts, as NT3
    "short_rows": (60_000, 9, 12, True),  # several, of decreasing sizes
    "few_rows": (800, 800, 10, False),  # of between 5 and 10 MiB: looked at, and read by calls
    "small": (100, 50, 9, True),
}


TRACED = ("openat", "read", "pread64", "lseek", "mmap", "close", "fcntl")


def fmt_of(elements: int, **options: Any) -> Any:
    fields = [FieldConfig("a", "float64", [elements])]
    return create(DatasetConfig(format="csv", fields=fields, csv=CsvConfig(**{"reader": "mapped", **options})), 1)


def calls_of(program: str, folder: Path, *names: str) -> dict[str, list[tuple[str, str, int]]]:
    """Name, arguments without addresses, and result of each call on the files, by their names."""
    calls = trace([sys.executable, "-c", program, *names], folder / "log", cwd=folder, env=os.environ, traced=TRACED)
    by_name: dict[str, list[tuple[str, str, int]]] = {}
    for call in calls:
        place = re.search(re.escape(f"{folder.resolve()}/") + r"(\w+\.csv)", f"{call.arguments} {call.path}")
        if place is not None:
            arguments = re.sub(r"\d+<[^>]*>|\"[^\"]*\"", "F", call.arguments)
            by_name.setdefault(place[1], []).append((call.name, arguments, 0 if call.name == "openat" else call.result))
    return by_name


@maps
def test_calls_are_those_of_pandas(tmp_path: Path) -> None:
    need_strace()
    if whole_cores() < 2:
        pytest.skip("pandas maps files only where it has two cores")
    folder = tmp_path / "tables"
    folder.mkdir()
    names = []
    for name, (rows, columns, width, header) in FILES.items():
        write(fmt_of(columns, value_chars=width, header=header), folder / f"{name}.csv", 0, rows)
        names.append(f"{name}.csv:{columns}:{int(header)}")
    ours, theirs = (calls_of(program, folder, *names) for program in (OURS, PANDAS))
    for name in FILES:
        got, want = ours[f"{name}.csv"], theirs[f"{name}.csv"]
        mapped = name in ("long_rows", "short_rows")
        assert any(call[0] == "mmap" for call in want) == mapped
        if mapped:
            assert got == want
        else:  # the size that is asked for at the end depends on what the parser has decoded
            assert [(call, result) for call, _, result in got] == [(call, result) for call, _, result in want]


@pytest.mark.parametrize(
    ("rows", "columns", "header", "threads"), [(60_000, 9, True, 2), (60_000, 9, False, 3), (700, 1400, False, 2)]
)
def test_rows_are_the_same(rows: int, columns: int, header: bool, threads: int, tmp_path: Path) -> None:
    fmt = fmt_of(columns, value_chars=12, header=header, threads=threads)
    path = write(fmt, tmp_path / "a.csv", 0, rows)
    parts = parts_of(path, header, ",", threads)
    assert len(parts) >= 2
    assert [low for low, _ in parts[1:]] == [high for _, high in parts[:-1]]
    assert parts[-1][1] == path.stat().st_size
    reader = fmt.open(path)
    assert reader.num_samples == rows
    some = [0, 1, rows // 2, rows - 1]
    check_batch(fmt, read(fmt, reader, some), some)
    reader.close()


def spoilt(change: Callable[[list[str]], None], path: Path) -> Path:
    lines = [",".join(f"{value:.9f}" for value in row) for row in np.random.default_rng(1).random((60_000, 9))]
    change(lines)
    path.write_text("\n".join(lines) + "\n")
    assert path.stat().st_size > MAPPED_BYTES
    return path


def test_damage_is_named_as_by_read_calls(tmp_path: Path) -> None:
    def word(lines: list[str]) -> None:
        lines[41_234] = lines[41_234].replace(lines[41_234][:5], "word", 1)

    def short(lines: list[str]) -> None:
        lines[50_000] += ",1.5"

    for number, change in enumerate((word, short)):
        path = spoilt(change, tmp_path / f"{number}.csv")
        texts = [refusal(lambda: fmt_of(9, reader=reader, threads=2).open(path)) for reader in ("mapped", "buffered")]  # noqa: B023
        assert texts[0] == texts[1]
        assert ("row 41234 has" in texts[0]) if number == 0 else ("row 50000 has 10 columns" in texts[0])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1.5", "row 599990 has 1.5 in column 0, which is not of type int64 as field a requires"),
        ("", "row 599990 has no value (a short row or an empty field) in column 0"),
    ],
)
def test_the_row_of_a_bad_value_is_counted_in_the_file(value: str, words: str, tmp_path: Path) -> None:
    lines = ["1,12345678\n"] * 600_000
    lines[599_990] = f"{value},12345678\n"
    path = tmp_path / "a.csv"
    path.write_text("".join(lines))
    assert len(parts_of(path, header=False, delimiter=",", threads=2)) >= 2
    options = CsvConfig(reader="mapped", threads=2)
    fmt = create(DatasetConfig(format="csv", fields=[FieldConfig("a", "int64", [2])], csv=options), 1)
    assert words in refusal(lambda: fmt.open(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        fmt_of(3).open(tmp_path / "none.csv")


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="chunk_rows=5"):
        fmt_of(3, chunk_rows=5)
    for delimiter in ("", ",,", "1", "e", '"', "."):
        with pytest.raises(ConfigError, match="cannot separate numbers"):
            fmt_of(3, delimiter=delimiter)
    with pytest.raises(ConfigError, match="selects from existing files"):
        fmt_of(3, columns=[0, 1, 2])
    fields = [FieldConfig("a", "float64", [1])]
    with pytest.raises(ConfigError, match="negative"):
        create(DatasetConfig(format="csv", path="x", fields=fields, csv=CsvConfig(columns=[-1])), 1)


@pytest.mark.parametrize("reader", ["buffered", "mapped"])
def test_reports_know_that_files_are_mapped(reader: str) -> None:
    config = Config(dataset=DatasetConfig(format="csv", csv=CsvConfig(reader=reader)))
    assert facts("csv").maps_files(config) == (reader == "mapped")


def test_a_study_tries_options_that_have_an_effect() -> None:
    def tried(**options: Any) -> dict[str, tuple[str, ...]]:
        return dict(facts("csv").axes(Config(dataset=DatasetConfig(format="csv", csv=CsvConfig(**options)))))

    assert list(tried()) == ["dataset.csv.read_bytes"]
    assert tried(reader="mapped", threads=3) == {"dataset.csv.threads": ("1", "2", "3", "4")}
