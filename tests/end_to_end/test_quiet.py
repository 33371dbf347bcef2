"""With --quiet, commands print results and nothing else; warnings and errors stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ranks import clean_environ

pytestmark = pytest.mark.ranks


def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlio_torch", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=clean_environ(), capture_output=True, text=True, timeout=200, check=False
    )


def test_a_quiet_run_prints_its_figures_only(tmp_path: Path) -> None:
    words = ("recipe=minimal", "scale=tiny", "loader=workers", "stage.dir=local")
    loud = call(*words, "output.dir=a", cwd=tmp_path)
    assert {"scale:", "data:", "stage:"} <= {line.split()[0] for line in loud.stderr.splitlines()}
    quiet = call(*words, "output.dir=b", "dataset.root=again", "-q", cwd=tmp_path)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert f"Results: {tmp_path / 'b'}" in quiet.stdout
    assert (tmp_path / "a" / "config.yaml").read_text().count("progress: true") == 1
    assert (tmp_path / "b" / "config.yaml").read_text().count("progress: true") == 1
    written = call("generate", "-q", "recipe=minimal", "dataset.root=third", cwd=tmp_path)
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    failed = call("train", "-q", "recipe=minimal", "dataset.root=missing", cwd=tmp_path)
    assert failed.returncode == 3
    assert failed.stderr.startswith("dlio_torch: error: ")


def test_a_quiet_study_prints_its_table_and_its_failures(tmp_path: Path) -> None:
    words = ("sweep", "recipe=minimal", "scale=tiny", "repeats=1", "seed=1", "output=study")
    done = call(*words, "-q", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Tables: " in done.stdout
    plan = call(*words[:-1], "output=other", "-q", "--dry-run", cwd=tmp_path)
    assert "trials: 1 point" in plan.stderr
    failing = call(*words[:-1], "output=failing", "timeout=1ms", "failures=1", "-q", cwd=tmp_path)
    assert failing.returncode == 1
    assert "failed (exit code" in failing.stderr
    assert "trials: " not in failing.stderr
