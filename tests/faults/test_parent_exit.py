"""Nobody outlives a process that was killed, and for whom it works: workers, and ranks that have not met yet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from ranks import clean_environ

WAIT_S = 60.0


@pytest.fixture
def group() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes with a group each, which is killed at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def start(group: list[subprocess.Popen[str]], words: list[str], cwd: Path) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, *words], env=clean_environ(), cwd=cwd, text=True, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    group.append(made)
    return made


def children(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        found = psutil.Process(process.pid).children()
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError("they were not started")


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
def test_a_worker_ends_with_its_trainer_even_if_it_is_stopped(
    engine: str, group: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    words = ["-m", "dlio_torch", "recipe=minimal", "scale=tiny", f"loader.engine={engine}", "loader.num_workers=2"]
    trainer = start(group, [*words, "compute.step_s=60s", "train.steps=2", "output.dir=run"], tmp_path)
    workers = children(trainer, 2)
    # The first step is there: both have begun.
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and not any((tmp_path / "run/events").glob("*.names")):
        time.sleep(0.05)
    for worker in workers:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end and not any((tmp_path / "run/events").glob(f"rank0-{worker.pid}.*")):
            time.sleep(0.05)
        worker.suspend()
    trainer.kill()
    assert psutil.wait_procs(workers, timeout=WAIT_S)[1] == []


def test_a_rank_ends_with_torchrun_before_all_have_met(group: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    program = tmp_path / "late.py"
    program.write_text(
        "import os, runpy, sys, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    time.sleep(1000)\n"
        "from dlio_torch.dist import torchdist\n"
        "begin = torchdist.dist.init_process_group\n"
        "def tell(*words, **options):\n"
        "    parent = os.getppid()\n"
        "    open('begun', 'w').close()\n"
        "    while os.getppid() == parent:\n"
        "        time.sleep(0.01)\n"
        "    begin(*words, **options)\n"
        "torchdist.dist.init_process_group = tell\n"
        "sys.argv = ['dlio_torch', 'recipe=minimal', 'scale=tiny']\n"
        "runpy.run_module('dlio_torch', run_name='__main__')\n"
    )
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    launcher = start(group, words, tmp_path)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and not (tmp_path / "begun").exists():
        time.sleep(0.05)
    ranks = {one.environ()["RANK"]: one for one in children(launcher, 2)}
    launcher.kill()
    assert psutil.wait_procs([ranks["0"]], timeout=WAIT_S)[1] == []
    ranks["1"].kill()
    said = launcher.communicate(timeout=WAIT_S)[1]
    assert "dlio_torch: error: rank 0: torchrun ended before all ranks had connected\n" in said
