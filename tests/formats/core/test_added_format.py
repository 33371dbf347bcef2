"""The complete format of docs/adding.md keeps the contract, and a run generates and reads its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO

SECTION = (REPO / "docs/adding.md").read_text("utf-8").partition("### A complete example")[2].partition("\n## ")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The package of the example, as ``pip install --target`` leaves it."""
    (entry_point,) = re.findall(r"point `(rows = .*?)`:", " ".join(SECTION.split()))
    info = tmp_path / "rows_format-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rows-format\nVersion: 1.0\n", encoding="utf-8")
    points = ["[dlio_torch.formats]", entry_point.replace('"', "")]
    (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    for name, text in zip(("rows_facts.py", "rows_format.py", "test_rows_format.py"), blocks, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    paths = [str(REPO), str(folder), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_format_of_the_page_keeps_the_contract(folder: Path) -> None:
    test = str(folder / "test_rows_format.py")
    done = python(folder, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull, test)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[2-9]\d passed", done.stdout)


def test_a_run_generates_and_reads_its_files(folder: Path) -> None:
    (command,) = re.findall(r"`python (-m dlio_torch [^`]*dataset.format=rows)`", SECTION)
    done = python(folder, *command.split(), "scale=tiny", "verify=true")
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("data/minimal-*/train/*.rows"))
