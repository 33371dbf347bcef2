"""Runs that are ended from outside: exit codes, messages, what is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_sharer
from pathlib import Path

import numpy as np
import psutil
import pytest
from ranks import clean_environ

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.data.workers.worker_errors import without_last_words
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.supervision.signals import deferred
from dlio_torch.train.steps import TRAIN, journal_of, read_steps

# 2,000 steps of 20 ms: no test waits for the end.
LONG = (
    *("recipe=minimal", "scale=paper", "dataset.samples_per_file=8", "train.epochs=250", "train.warmup_steps=0"),
    "compute.step_s=20ms",
)

# A shell that starts the tests in the background makes them, and their children, deaf to Ctrl-C.
PROGRAM = """
import signal, sys
from dlio_torch.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


@dataclass(frozen=True)
class Killed:
    exit_code: int
    stdout: str
    stderr: str
    children: list[psutil.Process]
    directory: RunDir


def end_after(folder: Path, send: Callable[[subprocess.Popen[str]], object], *arguments: str) -> Killed:
    """Start a long run, end it when its first steps are in the journal, and wait for it."""
    directory = RunDir(folder / "run")
    journal = journal_of(directory.steps(0))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *LONG, *arguments, f"output.dir={directory.path}"],
        cwd=folder,
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        header = 12
        deadline = time.monotonic() + 60
        while not (journal.exists() and journal.stat().st_size > header):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        send(process)
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return Killed(process.returncode, out, err, children, directory)


def gone(children: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(children, timeout=10)[1]


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """What a terminal does: the whole group gets the signal, loader workers too."""
    os.killpg(process.pid, signal.SIGINT)


def own_lines(text: str) -> list[str]:
    """Lines of a message, without what is said of the data and the progress."""
    return [
        line
        for line in text.splitlines()
        if not line.startswith(("data:", "scale:", "cache:", "training:", "generating:"))
    ]


def test_a_run_that_is_killed_leaves_what_it_had(tmp_path: Path) -> None:
    killed = end_after(tmp_path, lambda process: process.kill(), "loader.read_threads=1")
    assert killed.exit_code == -signal.SIGKILL
    directory = killed.directory
    config = compose([f"recipe={directory.config}"]).config
    assert config.train.epochs == 250
    steps = read_steps(directory.steps(0))[0]
    assert len(steps) > 0
    assert set(steps["phase"].tolist()) == {TRAIN}
    assert np.all(steps["samples"] == 4)
    assert np.all(steps["compute_ns"] >= 20_000_000)
    table = read_events(directory.events)
    assert [process.role for process in table.processes] == ["trainer"]
    # Each step of the journal was read, one batch of 4 samples by one thread.
    assert (table.frame["op"] == "read").sum() >= 4 * len(steps)
    assert set(directory.missing()) == {"summary.json", "steps.csv", "trace.json.gz"}


@pytest.mark.parametrize("loader", ["loader.num_workers=2", "loader.read_threads=2"])
def test_ctrl_c_ends_a_run_at_once(loader: str, tmp_path: Path) -> None:
    killed = end_after(tmp_path, ctrl_c, loader)
    assert killed.exit_code == 130
    folder = killed.directory.path
    assert own_lines(killed.stderr) == [
        f"dlio_torch: interrupted; the recording so far is in {folder}; "
        f"show it with: python -m dlio_torch report {folder}"
    ]
    assert cli.main(["report", str(folder)]) == 0
    assert killed.stdout == ""
    assert gone(killed.children)
    steps = read_steps(killed.directory.steps(0))[0]
    assert killed.directory.steps(0).exists()
    table = read_events(killed.directory.events)
    # The steps that were done have their spans.
    assert (table.frame["op"] == "compute").sum() == len(steps) > 0
    workers = [process for process in table.processes if process.role.startswith("loader worker")]
    assert bool(workers) == (loader == "loader.num_workers=2")


def test_sigterm_ends_a_run_and_its_workers(tmp_path: Path) -> None:
    killed = end_after(
        tmp_path, lambda process: process.terminate(), "loader.num_workers=1", "loader.persistent_workers=true"
    )
    assert killed.exit_code == 143
    told = f"the recording so far is in {killed.directory.path}; show it with: python -m dlio_torch report"
    assert own_lines(killed.stderr) == [f"dlio_torch: terminated; {told} {killed.directory.path}"]
    assert killed.children
    assert gone(killed.children)
    assert len(read_steps(killed.directory.steps(0))[0]) > 0


def test_ctrl_c_waits_until_workers_are_known() -> None:
    """A signal in the middle of starting workers is delivered when all of them can be ended."""
    done: list[str] = []

    def start() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("started")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["started"]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_trainer_that_hangs_up_leaves_no_traceback(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a worker's thread prints while it passes memory on, with and without our hook."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    if quiet:
        without_last_words(0)
    sharer = resource_sharer._resource_sharer  # type: ignore[attr-defined]
    address, _ = sharer.register(lambda connection, pid: None, lambda: None)
    with socket.socket(socket.AF_UNIX) as trainer:
        trainer.connect(address)
    resource_sharer.stop(timeout=10)
    assert ("Traceback" in capfd.readouterr().err) is not quiet
    # Anything else is still said.
    sys.excepthook(ValueError, ValueError("of ours"), None)
    assert "of ours" in capfd.readouterr().err
