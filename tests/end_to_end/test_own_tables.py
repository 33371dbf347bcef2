"""Tables of one's own in two commands: a Parquet file that pandas wrote, and a data set that datasets saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from file_calls import calls_on_files
from own_data import command, python, summary_of
from ranks import clean_environ
from strace import READS, need_strace

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("datasets", reason="datasets is not installed")

ROWS = 960  # 30 batches of 32

SAVE = """
import datasets
datasets.disable_progress_bars()
content = {"text": ["x" * (i % 90) for i in range(960)], "label": [i % 2 for i in range(960)]}
features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
datasets.Dataset.from_dict(content, features=features).save_to_disk("saved", num_shards=2)
"""
LOAD = """
import datasets
data = datasets.load_from_disk("saved")
assert len([data[i]["text"] for i in range(960)]) == 960
"""
READ_TABLE = """
import pyarrow.parquet as pq
file = pq.ParquetFile("table.parquet", pre_buffer=False)
file.read_row_group(0, columns=["text", "number", "value", "truth"], use_threads=False)
"""


def offline(folder: Path) -> dict[str, str]:
    return clean_environ() | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "home")}


def test_a_table_that_pandas_wrote(tmp_path: Path) -> None:
    need_strace()
    frame = pd.DataFrame(
        {
            "text": [f"row {i}" for i in range(ROWS)],
            "number": np.arange(ROWS),
            "value": np.linspace(0, 1, ROWS),
            "truth": [i % 3 == 0 for i in range(ROWS)],
            "rare": pd.array([None if i == 5 else i for i in range(ROWS)], dtype="Int64"),
            "time": pd.date_range("2020-01-01", periods=ROWS),
        }
    )
    frame.to_parquet(tmp_path / "table.parquet")
    shown = json.loads(command("inspect", "table.parquet", "--json", cwd=tmp_path))
    assert (shown["format"], shown["samples"], shown["questions"]) == ("parquet", ROWS, [])
    assert {array["name"] for array in shown["arrays"] if array["note"]} == {"rare", "time"}
    command("dataset.path=table.parquet", "trace.posix=true", "output.dir=run", cwd=tmp_path)
    figures = summary_of(tmp_path)
    assert figures["reads"]["samples"] == ROWS
    (file,) = figures["posix"]["files"]["rows"]
    plain = calls_on_files(READ_TABLE, tmp_path, ".parquet", env=offline(tmp_path))["table.parquet"]
    reads = [result for name, _, result in plain if name in READS]
    assert (file["reads"], file["bytes_read"]) == (len(reads), sum(reads))


def test_a_data_set_that_datasets_saved(tmp_path: Path) -> None:
    need_strace()
    python("-c", SAVE, cwd=tmp_path, environ=offline(tmp_path))
    text = command("inspect", "saved", cwd=tmp_path, environ=offline(tmp_path))
    assert f"samples         {ROWS}" in text
    assert "text uint8 [~42.6]; label int64" in text
    output = command(
        "dataset.path=saved", "trace.posix=true", "output.dir=run", cwd=tmp_path, environ=offline(tmp_path)
    )
    figures = summary_of(tmp_path)
    assert figures["reads"]["samples"] == ROWS
    # Samples are read by page faults: no call reads them, here as in the application.
    plain = calls_on_files(LOAD, tmp_path, ".arrow", env=offline(tmp_path))
    files = {Path(row["file"]).name: row for row in figures["posix"]["files"]["rows"] if row["opens"]}
    assert set(files) == set(plain) - {""}
    for name, calls in plain.items():
        assert not [call for call in calls if call[0] in READS]
        assert name == "" or files[name]["bytes_read"] == 0
    sizes = [path.stat().st_size for path in (tmp_path / "saved").glob("*.arrow")]
    assert figures["posix"]["untraced"]["mapped_bytes"] == sum(sizes)
    assert "page faults in" in output
