"""Programs of tests are processes like those that start by themselves."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forked_programs
import psutil
import pytest

PROGRAM = [sys.executable, "-m", "dlio_torch"]
LONG = [*PROGRAM, "recipe=minimal", "compute.step_s=20", "dataset.root=data", "output.dir=run"]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Mapping[Any, Any]:
    """The servers of this process, after it may have started one for its own environment."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    subprocess.run([*PROGRAM, "ls"], stdout=subprocess.DEVNULL, check=True)
    return forked_programs._servers


@pytest.mark.usefixtures("servers")
def test_output_and_exit_code(tmp_path: Path) -> None:
    done = subprocess.run([*PROGRAM, "recipe=none"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dlio_torch: error: recipe=none (command line): no such recipe")
    both = subprocess.run([*PROGRAM, "recipe=none"], stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
    assert both.stdout == done.stderr


@pytest.mark.usefixtures("servers")
def test_process(tmp_path: Path) -> None:
    with subprocess.Popen(LONG, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL) as program:
        process = psutil.Process(program.pid)
        assert process.ppid() == os.getpid()
        assert [word for word in process.cmdline() if word] == LONG
        assert process.cwd() == str(tmp_path)
        assert os.getsid(program.pid) == program.pid
        program.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL


@pytest.mark.usefixtures("servers")
def test_environment_folder_and_limits(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with subprocess.Popen(LONG, cwd=tmp_path, stderr=subprocess.DEVNULL) as program:
            limits = psutil.Process(program.pid).rlimit(resource.RLIMIT_NOFILE)
            program.kill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits[0] == soft - 1
    show = [*PROGRAM, "show", "recipe=minimal", "train.batch_size=${oc.env:SIZE}"]
    done = subprocess.run(
        show, env=os.environ | {"SIZE": "7"}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "batch_size: 7" in done.stdout, done.stderr


def test_start_by_itself(servers: Mapping[Any, Any]) -> None:
    """Where a package would be imported in another environment, no server of this one is used."""
    before = set(servers)
    for more in {"LD_PRELOAD": ""}, {"OMP_NUM_THREADS": "3"}:
        forked_programs._MOST_SERVERS, most = 0, forked_programs._MOST_SERVERS
        try:
            done = subprocess.run([*PROGRAM, "ls"], env=os.environ | more, capture_output=True, text=True, check=False)
        finally:
            forked_programs._MOST_SERVERS = most
        assert (done.returncode, done.stderr) == (0, "")
        assert set(servers) == before
