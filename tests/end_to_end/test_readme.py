"""Every command of README.md works, and CI runs its first two as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import REPO, clean_environ, need_horovod

BLOCKS = re.findall(r"```sh\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.DOTALL)
SET_UP, TEST, *TOUR = BLOCKS


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
