"""Memory of saves: what a save holds while it runs, in this process and in the saver's others."""

from __future__ import annotations

import mmap
import os
import threading
from dataclasses import replace
from pathlib import Path

import background_saver
import pytest
from background_saver import PATH, BackgroundSaver
from checkpointers import checkpointer

from dlio_torch.checkpoint import save_memory
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.checkpoint.save_memory import SaveMemory, resident_bytes
from dlio_torch.config.schema import CheckpointConfig

SIZE = 32 << 20
needs_status = pytest.mark.skipif(
    not {"RssAnon", "RssShmem", "VmHWM"} <= resident_bytes("self").keys(), reason="/proc tells no resident memory"
)


@needs_status
def test_what_a_save_in_the_background_holds_is_its_peak() -> None:
    memory = SaveMemory(list)
    memory.begin()
    staged = mmap.mmap(-1, SIZE)  # new pages, and none that Python has kept from before
    staged.write(b"x" * SIZE)
    memory.sample(at_once=True)
    assert memory.peak_bytes is not None
    assert len(staged) <= memory.peak_bytes < 3 * SIZE
    peak = memory.peak_bytes
    staged.close()
    memory.sample(at_once=True)
    assert memory.peak_bytes == peak


@needs_status
def test_processes_of_the_saver_count() -> None:
    others: list[int] = []
    memory = SaveMemory(lambda: others)
    memory.begin()
    others.append(os.getpid())  # a process that saves appears while a save runs
    memory.sample(at_once=True)
    assert memory.peak_bytes is not None
    assert memory.peak_bytes > SIZE  # the memory of a whole Python process with torch or numpy


def test_a_synchronous_save_is_known_by_a_new_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [{"VmHWM": 900, "VmRSS": 500}, {"VmHWM": 900, "VmRSS": 600}, {"VmHWM": 900, "VmRSS": 600}]
    monkeypatch.setattr(save_memory, "resident_bytes", lambda pid: readings.pop(0))
    memory = SaveMemory(list)
    memory.begin()
    memory.end_synchronous()
    assert memory.peak_bytes is None  # the trainer held more before, so this save may have held 0 to 400
    memory.begin()
    readings.append({"VmHWM": 1000, "VmRSS": 600})
    memory.end_synchronous()
    assert memory.peak_bytes == 400


def test_a_system_that_tells_no_memory_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_memory, "resident_bytes", lambda pid: {})
    memory = SaveMemory(list)
    memory.begin()
    memory.sample(at_once=True)
    memory.end_synchronous()
    assert memory.peak_bytes is None


def test_a_process_that_has_ended_holds_nothing() -> None:
    assert resident_bytes(str(2**22 + 1)) == {}


@needs_status
def test_a_checkpointer_samples_when_the_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN, "torch_save", replace(BUILTIN["torch_save"], target=PATH))
    written = threading.Event()
    monkeypatch.setattr(BackgroundSaver, "gate", staticmethod(lambda folder, step: written.wait(60)))
    others = iter([[], [os.getpid()]])  # a process that saves appears after the begin of the save
    in_processes = type("SaverInProcesses", (BackgroundSaver,), {"processes": lambda self: next(others)})
    monkeypatch.setattr(background_saver, "BackgroundSaver", in_processes)
    saves = checkpointer(CheckpointConfig(layout="torch_save", every_steps=1, state_bytes=4096), tmp_path)
    saves.save(1)
    written.set()
    saves.end(1)
    assert saves.peak_bytes is not None
    assert saves.peak_bytes > SIZE
