"""Every command of docs/own_data.md and docs/data_formats.md works, and the JSON has the keys that the page names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO, clean_environ

PAGE, FORMATS = ((REPO / "docs" / name).read_text(encoding="utf-8") for name in ("own_data.md", "data_formats.md"))
LIBRARIES = ("datasets", "lmdb", "PIL", "pyarrow", "safetensors", "webdataset", "zarr")


def done_in(folder: Path, page: str) -> subprocess.CompletedProcess[str]:
    """All commands of a page, one after another in one folder, of which the first that fails is the last."""
    environ = clean_environ()
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.timeout(600)
def test_the_commands_for_each_format_work(tmp_path: Path) -> None:
    for library in LIBRARIES:
        pytest.importorskip(library, reason=f"{library} is not installed")
    done_in(tmp_path, FORMATS)
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
        *("zarr", "safetensors", "lmdb"),
    ]


@pytest.mark.timeout(600)
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    done = done_in(tmp_path, PAGE)
    assert "the earlier results there are kept as" in done.stderr
    assert "scale: as written; scale=laptop shrinks it" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.h5", "mine.yaml", "runs", "shots", "shots.json"]
    summary = json.loads(next(tmp_path.glob("runs/custom/*/summary.json")).read_text())
    assert summary["train"]["samples"] + summary["warmup"]["samples"] == 96
    keys = json.loads((tmp_path / "shots.json").read_text())
    table = PAGE[PAGE.index("## The JSON of `inspect`") :]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named | {"schema", "version"} == set(keys)


def test_the_readme_leads_to_the_pages() -> None:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    for page in re.findall(r"\(([\w/]+\.md)\)", readme):
        assert (REPO / page).is_file(), page
    assert "(docs/own_data.md)" in readme
    assert "(docs/python_api.md)" in readme
    titles = re.findall(r"^## (.*)", FORMATS, re.MULTILINE)
    headings = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    for page, anchor in re.findall(r"\(([\w./]+\.md)(?:#([\w-]+))?\)", PAGE):
        assert (REPO / "docs" / page).resolve().is_file(), page
        assert page != "data_formats.md" or anchor in headings, anchor
