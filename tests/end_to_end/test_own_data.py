"""Every command of docs/own_data.md works, one after another in one folder, and its JSON has the keys that it names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO, clean_environ

PAGE = (REPO / "docs" / "own_data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.timeout(300)
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    environ = clean_environ()
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(BLOCKS)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
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
    for page in re.findall(r"\(([\w./]+\.md)(?:#[\w-]+)?\)", PAGE):
        assert (REPO / "docs" / page).resolve().is_file(), page
