"""What is counted of a process tree: the work of its children, and nothing of the search for them."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from dlio_torch.iotrace.recorder.io_counters import io_counters
from dlio_torch.train import counters
from dlio_torch.train.counters import tree_counters

pytestmark = pytest.mark.skipif(io_counters() is None, reason="needs /proc/PID/io")


def test_the_search_for_children_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        def children(self, *, recursive: bool) -> list[psutil.Process]:
            assert recursive
            with open("/proc/self/stat", "rb", buffering=0) as file:
                for _ in range(500):
                    os.pread(file.fileno(), 64, 0)
            return []

    monkeypatch.setattr(counters.psutil, "Process", Process)
    before = tree_counters(begins=True)
    with open("/proc/self/stat", "rb", buffering=0) as file:
        for _ in range(40):
            os.pread(file.fileno(), 64, 0)
    after = tree_counters()
    assert before is not None
    assert after is not None
    assert 40 <= (after - before).syscr < 100


def test_children_count_while_they_live_and_after() -> None:
    reads = """
import os, sys
file = os.open("/proc/self/stat", 0)
for _ in range(5000):
    os.pread(file, 64, 0)
print(1, flush=True)
sys.stdin.read()
"""
    before = tree_counters(begins=True)
    with subprocess.Popen([sys.executable, "-c", reads], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        alive = tree_counters()
    ended = tree_counters()
    assert before is not None
    assert alive is not None
    assert ended is not None
    assert (alive - before).syscr >= 5000
    assert 5000 <= (ended - before).syscr < 10_000
