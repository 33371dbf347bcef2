"""Run delay of a thread: it grows, belongs to the thread, leaves no file open, and may be unknown."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dlio_torch.iotrace.recorder import run_queue
from dlio_torch.iotrace.recorder.run_queue import SCHEDSTAT, UNKNOWN, RunQueue, run_delay_ns, run_delay_since

needs_schedstat = pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the kernel reports no run delays")


@needs_schedstat
def test_the_delay_grows_and_both_ways_read_the_same_figure() -> None:
    queue = RunQueue()
    readings = [reading for _ in range(50) for reading in (run_delay_ns(), queue.delay_ns())]
    assert readings == sorted(readings)
    assert readings[0] >= 0
    assert 0 <= run_delay_since(readings[-1]) <= run_delay_ns()


@needs_schedstat
def test_a_new_thread_has_a_delay_of_its_own() -> None:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(run_delay_ns()))
    thread.start()
    thread.join()
    text = Path("/proc/self/schedstat").read_text().split()
    assert results[0] >= 0
    assert run_delay_ns() >= int(text[1])  # of the main thread, which runs this test


@needs_schedstat
def test_no_file_stays_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        run_delay_ns()
    queue = RunQueue()
    del queue
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("content", [None, "", "12", "12 many 3"])
def test_a_kernel_without_the_figure(content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = tmp_path / "schedstat"
    if content is not None:
        stated.write_text(content)
    monkeypatch.setattr(run_queue, "SCHEDSTAT", str(stated))
    assert run_delay_ns() == UNKNOWN
    assert RunQueue().delay_ns() == UNKNOWN
    assert run_delay_since(5) == 0
