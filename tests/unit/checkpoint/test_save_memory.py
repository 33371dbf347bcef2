"""Memory of saves: what a save allocates while it runs, in this process and in the saver's others."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dlio_torch.checkpoint import save_memory
from dlio_torch.checkpoint.save_memory import SaveMemory, resident_bytes

pytestmark = pytest.mark.skipif(
    resident_bytes("self", ("RssAnon",)) is None, reason="/proc/self/status names no resident memory"
)
SIZE = 32 << 20


def sampled(memory: SaveMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits until memory was read once more after its level."""
    read = threading.Event()

    def reading(pid: str, kinds: tuple[str, ...]) -> int | None:
        size = resident_bytes(pid, kinds)
        if threading.current_thread().name == "save memory":
            read.set()
        return size

    monkeypatch.setattr(save_memory, "resident_bytes", reading)
    for _ in range(2):  # the first sample may have begun before
        read.clear()
        assert read.wait(60)


def test_what_a_save_holds_is_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SaveMemory(list)
    memory.begin()
    staged = b"x" * SIZE
    sampled(memory, monkeypatch)
    memory.end()
    memory.close()
    assert memory.peak_bytes is not None
    assert len(staged) <= memory.peak_bytes < 2 * SIZE


def test_processes_of_the_saver_count(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[int] = []
    memory = SaveMemory(lambda: others)
    memory.begin()
    others.append(os.getpid())  # a process that saves appears while a save runs
    sampled(memory, monkeypatch)
    memory.close()
    assert memory.peak_bytes is not None
    assert memory.peak_bytes > SIZE  # the memory of a whole Python process with torch or numpy


def test_no_sample_no_figure() -> None:
    memory = SaveMemory(list)
    memory.begin()
    memory.end()
    memory.close()
    assert memory.peak_bytes is None


def test_a_process_that_has_ended_holds_nothing() -> None:
    assert resident_bytes(str(2**22 + 1), ("RssAnon",)) is None
    assert not Path("/proc/4194305").exists()
