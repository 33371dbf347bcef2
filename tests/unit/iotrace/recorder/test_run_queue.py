"""Run delay of a thread: it grows, belongs to the thread, harms no file of the program, and may be unknown."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dlio_torch.iotrace.recorder import run_queue
from dlio_torch.iotrace.recorder.run_queue import SCHEDSTAT, UNKNOWN, RunQueue

needs_schedstat = pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the kernel reports no run delays")


def descriptors() -> set[int]:
    """Open files that say how long a thread waited."""
    names = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    return {int(name.name) for name in names if name.is_symlink() and os.readlink(name).endswith("schedstat")}


@needs_schedstat
def test_the_delay_grows() -> None:
    queue, other = RunQueue(), RunQueue()
    readings = [reading for _ in range(50) for reading in (queue.delay_ns(), other.delay_ns())]
    assert readings == sorted(readings)
    assert readings[0] >= 0
    assert 0 <= queue.delay_since(readings[-1]) <= queue.delay_ns()


@needs_schedstat
def test_a_new_thread_has_a_delay_of_its_own() -> None:
    queues: list[RunQueue] = []
    thread = threading.Thread(target=lambda: queues.append(RunQueue()))
    thread.start()
    thread.join()
    assert queues[0].delay_ns() in (UNKNOWN, 0) or queues[0].delay_ns() != RunQueue().delay_ns()


@needs_schedstat
def test_no_file_stays_open() -> None:
    before = descriptors()
    queue = RunQueue()
    assert len(descriptors() - before) == 1
    del queue
    assert descriptors() == before


@needs_schedstat
def test_a_file_of_the_program_with_the_same_number_stays_open(tmp_path: Path) -> None:
    before = descriptors()
    queue = RunQueue()
    (number,) = descriptors() - before
    os.close(number)
    mine = os.open(tmp_path, os.O_RDONLY)
    try:
        assert mine == number
        assert queue.delay_ns() == UNKNOWN
        del queue
        os.fstat(mine)
    finally:
        os.close(mine)


@pytest.mark.parametrize("content", [None, "", "12", "12 many 3"])
def test_a_kernel_without_the_figure(content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = tmp_path / "schedstat"
    if content is not None:
        stated.write_text(content)
    monkeypatch.setattr(run_queue, "SCHEDSTAT", str(stated))
    before = descriptors()
    queue = RunQueue()
    assert queue.delay_ns() == UNKNOWN
    assert queue.delay_since(5) == 0
    assert descriptors() == before
