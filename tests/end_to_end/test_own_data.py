"""Every command of docs/own_data.md and docs/data_formats.md works, and the JSON has the keys that the page names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from page_commands import run_page
from ranks import REPO

PAGE, FORMATS = ((REPO / "docs" / name).read_text(encoding="utf-8") for name in ("own_data.md", "data_formats.md"))
LIBRARIES = ("datasets", "lmdb", "PIL", "pyarrow", "safetensors", "webdataset", "zarr")


@pytest.mark.timeout(600)
def test_the_commands_for_each_format_work(tmp_path: Path) -> None:
    for library in LIBRARIES:
        pytest.importorskip(library, reason=f"{library} is not installed")
    run_page(FORMATS, tmp_path, 560)
    summaries = sorted(tmp_path.glob("runs/custom/*/summary.json"))
    used = [json.loads(path.read_text())["dataset"]["format"] for path in summaries]
    assert used == [
        *(
            "imagefolder",
            "imagefolder",
            "hdf5",
            "hdf5",
            "webdataset",
            "parquet",
            "arrow",
            "tokens",
            "npy",
            "csv",
            "csv",
        ),
        *("zarr", "safetensors", "lmdb", "extents"),
    ]


@pytest.mark.timeout(600)
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    done = run_page(PAGE, tmp_path, 560)
    assert "the earlier results there are kept as" in done.stderr
    assert "scale: as written; scale=laptop shrinks it" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.h5", "mine.yaml", "runs", "shots", "shots.json"]
    summary = json.loads(next(tmp_path.glob("runs/custom/*/summary.json")).read_text())
    assert summary["train"]["samples"] + summary["warmup"]["samples"] == 96
    keys = json.loads((tmp_path / "shots.json").read_text())
    table = PAGE[PAGE.index("## The JSON of `inspect`") :]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named | {"schema", "version"} == set(keys)
