"""What is known about who waits, who reads, and who was killed: read from the kernel."""

from __future__ import annotations

import errno
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.registry import worker_limits
from dlio_torch.data.workers.exits import WorkerDied, WorkerSignals, worker_died
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.supervision.out_of_memory import OomKills
from dlio_torch.supervision.thread_states import has_ended, threads_of
from dlio_torch.supervision.watchdog import Watchdog, WatchdogSettings
from dlio_torch.syserrors import refused

LIMITS = worker_limits(LoaderConfig(num_workers=1))


def test_a_thread_tells_which_file_it_reads_and_whether_it_is_stopped(tmp_path: Path) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the numbers of calls are known of two machines")
    os.mkfifo(tmp_path / "never")
    program = f"import os; f = os.open({str(tmp_path / 'never')!r}, os.O_RDWR); print(flush=True); os.read(f, 1)"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            thread = next(threads_of(process.pid))
            while thread.state == "R":  # until it is in the call
                thread = next(threads_of(process.pid))
            if not thread.file:
                pytest.skip("the kernel does not tell this user what its children do")
            assert str(thread).startswith(f"reads {tmp_path / 'never'} (asleep")
            assert thread.is_informative
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert "stopped by a signal (SIGSTOP)" in str(next(threads_of(process.pid)))
        finally:
            process.kill()
    assert list(threads_of(process.pid)) == []


def counts(root: Path, group: int | None, machine: int | None) -> Path:
    folder = root / "sys/fs/cgroup/job"
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text("0::/job\n")
    (root / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for path, count in ((folder / "memory.events", group), (root / "proc/vmstat", machine)):
        path.unlink(missing_ok=True)
        if count is not None:
            path.write_text(f"low 0\noom 9\noom_kill {count}\n")
    return root


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((1, 5), (3, 7), "out-of-memory killer has killed 2 processes of this control group during the run"),
        ((1, 5), (1, 6), "killed 1 process of this machine during the run"),
        ((1, 5), (1, 5), "has killed no process during the run: another process sent the signal"),
        ((None, None), (None, None), "the kernel does not show whether its out-of-memory killer killed the process"),
    ],
)
def test_what_the_kernel_counted(
    before: tuple[int | None, ...], after: tuple[int | None, ...], said: str, tmp_path: Path
) -> None:
    kills = OomKills.now(counts(tmp_path, *before))
    assert said in kills.since(counts(tmp_path, *after))


def test_a_worker_that_was_killed_is_told_from_one_without_shared_memory() -> None:
    killed = worker_died("DataLoader worker (pid 7) is killed by signal: Killed", LIMITS)
    assert "out-of-memory killer" in str(killed)
    assert "lower loader.num_workers" in str(killed)
    full = worker_died("DataLoader worker (pid 7) is killed by signal: Bus error", LIMITS)
    assert "raise the size of /dev/shm" in str(full)


def test_a_death_is_not_raised_where_it_would_be_lost() -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGCHLD)

    def tell(number: int, frame: FrameType | None) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    before = signal.signal(signal.SIGCHLD, WorkerSignals(tell, LIMITS))
    try:
        Dying()
        with pytest.raises(WorkerDied, match="killed by signal"):
            signal.raise_signal(signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_death_that_torch_does_not_know_is_found_when_reminded() -> None:
    """Python has asked how the worker ended before torch could: while another one was started."""
    worker = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    worker.start()
    before = signal.signal(signal.SIGCHLD, WorkerSignals(lambda number, frame: None, LIMITS))
    try:
        worker.join()
        assert has_ended(worker.pid)
        with pytest.raises(WorkerDied, match="ended with exit code 3"):
            WorkerSignals.check([worker])
        signal.raise_signal(signal.SIGCHLD)  # nobody has reminded of it
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_long_wait_is_named_and_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    given_up: list[str] = []
    over = threading.Event()

    def give_up(line: str) -> None:
        given_up.append(line)
        over.set()

    watchdog = Watchdog(
        lambda: ("the file", "its reader sleeps"), WatchdogSettings(0.01, limit_s=0.05, give_up=give_up)
    )
    with watchdog:
        assert over.wait(30)
    watchdog.stop()
    assert given_up == ["waiting for the file for 0 s: its reader sleeps"]
    assert capfd.readouterr().err.splitlines()[0] == "dlio_torch: waiting for the file for 0 s: its reader sleeps"
    assert "dlio_torch-watchdog" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            OSError(errno.EDQUOT, "x"),
            PreconditionError,
            "x: Disk quota exceeded; free space on the file system, or have the quota raised",
        ),
        (OSError(errno.EIO, "x"), RunFailed, "x: Input/output error; check the file system (dmesg), or elsewhere"),
        (
            RuntimeError("it (errno = 28) broke"),
            PreconditionError,
            "x: No space left on device; free space on the file system, or",
        ),
        (RuntimeError("NetCDF: HDF error"), RunFailed, "x: NetCDF: HDF error; elsewhere"),
    ],
)
def test_what_the_system_refuses_has_one_rule(error: Exception, kind: type[Exception], line: str) -> None:
    found = refused("x", error, elsewhere="elsewhere")
    assert type(found) is kind
    assert str(found).startswith(line)


def test_a_watch_whose_thread_cannot_be_started_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    watchdog = Watchdog(lambda: ("nothing", ""), WatchdogSettings(1.0))
    with pytest.raises(RuntimeError, match="start new thread"):
        watchdog.start()
    watchdog.stop()
