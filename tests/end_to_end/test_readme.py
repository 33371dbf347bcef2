"""Every command of README.md works, and CI runs its first two as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO, clean_environ, need_horovod

README = (REPO / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
SET_UP, TEST, *TOUR = BLOCKS
SHOWN = dict(re.findall(r"```sh\n([^`]*)```\n\n```text\n(.*?)```", README, re.DOTALL))
"""Output that follows a block of commands."""
SMALL = "scale=tiny"
"""Scale of the examples that verify or resume; all others are large enough for a verdict."""
NOISE = {"compute time error", "storage limit"}
"""Lines that depend on the load of the machine and on whether its storage was measured."""


def test_ci_runs_the_two_commands() -> None:
    script = (REPO / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    for block in (SET_UP, TEST):
        (command,) = block.strip().splitlines()
        assert command in script


def test_ci_hides_optional_parts_from_the_tests_that_need_them() -> None:
    script = (REPO / ".ci" / "run").read_text(encoding="utf-8")
    assert '\n.venv/bin/python -m pytest --without all -m "needs or horovod"\n' in script


@pytest.mark.ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", TOUR, ids=lambda block: block.splitlines()[0])
def test_tour(block: str, tmp_path: Path) -> None:
    if "horovodrun" in block:
        need_horovod()
    environ = clean_environ()
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if SMALL not in block:
        assert "too few steps" not in " ".join(done.stdout.split())
    if block in SHOWN:
        same_shape(SHOWN[block], done.stdout)


def test_the_output_of_a_run_is_shown() -> None:
    assert "python -m dlio_torch recipe=minimal\n" in SHOWN
    assert all(len(text.splitlines()) <= 20 for text in SHOWN.values())


def same_shape(shown: str, printed: str) -> None:
    """Compares the title, the verdict's interval, the names of the figures and the end of two outputs of a run."""
    first, second = shown.strip(), printed.strip()
    assert first.splitlines()[0] == second.splitlines()[0]
    interval = re.compile(r"\d % busy \(± \d+\.\d points at 95 % confidence, (\d+) steps\)")
    verdicts = [" ".join(text.split("\n\n")[0].split()) for text in (first, second)]
    assert [interval.findall(verdict) for verdict in verdicts] == [["127"], ["127"]]
    names = [re.findall(r"^([a-z][a-z ]+[a-z])  +\S", text, re.MULTILINE) for text in (first, second)]
    assert [name for name in names[0] if name not in NOISE] == [name for name in names[1] if name not in NOISE]
    assert len(names[0]) >= 6
    advice = re.compile(r"^(The loader is not the bottleneck|Steps wait for data) ?", re.MULTILINE)
    assert all(advice.search(text) for text in (first, second))
    results = [text.splitlines()[-1] for text in (first, second)]
    assert all(re.fullmatch(r"Results: .*runs/minimal/\d{8}-\d{6}", line) for line in results)
