"""A format of another distribution is equal to ours: options, checks, plan, run, tuning, comparison, contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO, SUPPORT

PACKAGE = SUPPORT / "framed_format"
"""As ``pip install --target`` leaves it: the package, and its entry point in a dist-info folder."""
RECIPE = """
description: records of another distribution
defaults: [{access: shuffled}, {loader: main_process}, {compute: sleep}]
dataset:
  format: framed
  num_files: 2
  samples_per_file: 16
  fields: [{name: image, dtype: float32, shape: [32, 32]}]
  framed: {alignment: 64}
train: {epochs: 1, batch_size: 4, batch_scope: rank}
compute: {step_s: 1ms}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("framed")
    (made / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    return made


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    paths = [str(REPO), str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def verb(folder: Path, *args: str, code: int = 0) -> str:
    done = python(folder, "-m", "dlio_torch", *args)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_its_options_are_shown_and_explained(folder: Path) -> None:
    lines = verb(folder, "show", "recipe=./mine.yaml").splitlines()
    assert "    alignment: 64                                # ./mine.yaml:9" in lines
    assert "    read_bytes: 65536                            # default" in lines
    assert "dataset.framed.read_bytes: size of one read call" in verb(folder, "explain", "dataset.framed.read_bytes")


def test_its_own_check_names_key_value_source_and_fix(folder: Path) -> None:
    assert verb(folder, "recipe=./mine.yaml", "dataset.framed.alignment=3", "--dry-run", code=2).splitlines()[-1] == (
        "dlio_torch: error: dataset.framed.alignment=3 (command line): it is no power of two; "
        "set dataset.framed.alignment=8"
    )


def test_the_plan_counts_its_bytes(folder: Path) -> None:
    # 32 records of 4 bytes of checksum and 4,096 of pixels, each at a multiple of 64.
    assert "train: 2 files, 32 samples, about 130 KiB" in verb(folder, "recipe=./mine.yaml", "--dry-run")


def test_runs_are_verified_and_compared_by_the_size_of_their_calls(folder: Path) -> None:
    for size in (65536, 512):
        options = ("verify=true", "trace.posix=true", f"dataset.framed.read_bytes={size}", f"output.root=runs/{size}")
        verb(folder, "recipe=./mine.yaml", *options)
    (large,), (small,) = (sorted((folder / "runs" / size / "mine").iterdir()) for size in ("65536", "512"))
    for run in (large, small):
        assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["verified_samples"] == 32
    compared = verb(folder, "compare", str(large), str(small))
    assert "Not alike: read count" in compared
    verb(folder, "report", str(small))
    assert "framed, 65.1 KiB, 16 frame(s)" in (small / "report.html").read_text(encoding="utf-8")


def test_its_files_are_inspected_and_read_in_one_command_more(folder: Path) -> None:
    verb(folder, "generate", "recipe=./mine.yaml", "dataset.root=own", "dataset.framed.alignment=8")
    (own,) = folder.glob("own/*/train")
    own.rename(folder / "records")
    text = verb(folder, "inspect", "records", "--output", "records.yaml")
    assert "records: framed" in text
    setting = "dataset.fields=[{name: data, dtype: uint8, shape: [4096]}]"
    assert "to be set: the arrays in a record of 4096 bytes are unknown" in text
    line = next(line for line in text.splitlines() if line.startswith("  python -m dlio_torch "))
    assert line == f"  python -m dlio_torch dataset.path=records '{setting}'"
    verb(folder, "dataset.path=records", setting, "dataset.framed.alignment=8", "output.dir=read")
    summary = json.loads((folder / "read" / "summary.json").read_text(encoding="utf-8"))
    assert summary["train"]["samples"] + summary["warmup"]["samples"] == 32
    recipe = (folder / "records.yaml").read_text(encoding="utf-8")
    assert "# To be checked: the arrays in a record of 4096 bytes are unknown." in recipe
    verb(folder, "run", "recipe=./records.yaml", "dataset.framed.alignment=8", "output.dir=again")


def test_tuning_tries_what_its_facts_name(folder: Path) -> None:
    fixed = ("loader=main_process", "loader.num_workers=0", "loader.read_threads=0", "loader.prefetch_batches=1")
    told = verb(folder, "tune", "recipe=./mine.yaml", "trials=8", "repeats=3", "space=all", *fixed)
    assert "  dataset.framed.read_bytes: 4KiB, 64KiB" in told.splitlines()
    assert "dataset.framed.read_bytes=4KiB: " in told


def test_it_keeps_the_contract(folder: Path) -> None:
    done = python(
        folder,
        "-m",
        "pytest",
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        str(PACKAGE / "framed_contract.py"),
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
