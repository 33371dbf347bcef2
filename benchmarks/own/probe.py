"""Runs the command line in this process and measures it from inside, at steps of the training.

    python -m benchmarks.own.probe STARTED WHAT,... FIRST STEPS OUTPUT ARGUMENTS...

STARTED is the clock (ns) at which the parent started this process, ARGUMENTS are those of ``python -m dlio_torch``.
Each WHAT but the first batch takes STEPS steps, one behind the other from step FIRST on; what is found is written to
OUTPUT as JSON.  The steps are told by the function that shows progress, which the trainer calls once a step.

======== =============================================================================================
WHAT     figures
======== =============================================================================================
first    ``s`` until the first batch is
         there, ``cpu_s``, ``peak_bytes`` of memory by then, names of the ``modules`` imported
time     ``s`` and ``cpu_s`` of all steps
memory   ``kept_bytes`` and ``kept_blocks`` of Python's memory after the last step that were not there
         before the first, ``peak_bytes`` between them
calls    system calls by name, counted by strace, which attaches to this process for these steps only; null
         where it cannot
======== =============================================================================================
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ANY_TRACER = ctypes.c_ulong(-1)
_SET_PTRACER = 0x59616D61  # PR_SET_PTRACER, where the kernel asks for it (Yama)
_PATIENCE_S = 30.0
_CALL = re.compile(r"^(?:\[?(?:pid)? *\d+\]? +)?(\w+)\(")
Figures = dict[str, Any]
_Show = Callable[[int, int], None]


class _Look:
    """A measurement: ``begin`` before the first step, ``end`` after the last one."""

    def begin(self) -> None:
        """Starts the measurement."""

    def end(self) -> Figures | None:
        """Result of the measurement; ``None`` if it is not possible."""
        raise NotImplementedError


class _Time(_Look):
    def begin(self) -> None:
        self._cpu, self._began = time.process_time(), time.perf_counter()

    def end(self) -> Figures:
        return {"s": time.perf_counter() - self._began, "cpu_s": time.process_time() - self._cpu}


class _Memory(_Look):
    def begin(self) -> None:
        gc.collect()
        tracemalloc.start()
        self._blocks = sys.getallocatedblocks()

    def end(self) -> Figures:
        kept, peak = tracemalloc.get_traced_memory()
        blocks = sys.getallocatedblocks() - self._blocks
        tracemalloc.stop()
        return {"kept_bytes": kept, "kept_blocks": blocks, "peak_bytes": peak}


class _Calls(_Look):
    def __init__(self, log: Path) -> None:
        self._log = log

    def begin(self) -> None:
        self._strace: subprocess.Popen[bytes] | None = None
        if shutil.which("strace") is None:
            return
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY_TRACER, 0, 0, 0)
        self._strace = subprocess.Popen(
            ["strace", "-f", "-o", str(self._log), "-p", str(os.getpid())], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + _PATIENCE_S
        while _tracer() != self._strace.pid:
            if self._strace.poll() is not None or time.monotonic() > until:
                self._strace.kill()
                self._strace = None
                return
            time.sleep(0.01)
        os.getppid()  # what comes before it is the waiting

    def end(self) -> Figures | None:
        if self._strace is None:
            return None
        os.getppid()
        self._strace.send_signal(signal.SIGINT)
        self._strace.wait(_PATIENCE_S)
        names = [found[1] for line in self._log.read_text().splitlines() if (found := _CALL.match(line))]
        marks = [number for number, name in enumerate(names) if name == "getppid"]
        return dict(Counter(names[marks[0] + 1 : marks[-1]]))


def _tracer() -> int:
    return _status("TracerPid")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(field + ":")).split()[1])


class _First(_Look):
    """At the first batch."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns

    def end(self) -> Figures:
        s = (time.perf_counter_ns() - self._started_ns) * 1e-9
        return {
            "s": s,
            "cpu_s": time.process_time(),
            "peak_bytes": _status("VmHWM") * 1024,
            "modules": sorted(sys.modules),
        }


def main(started_ns: int, what: list[str], first: int, steps: int, output: Path, arguments: list[str]) -> int:
    """Runs the command line; returns its exit code."""
    from dlio_torch.report.progress import Progress

    looks: dict[str, _Look] = {"time": _Time(), "memory": _Memory(), "calls": _Calls(output.with_suffix(".strace"))}
    begins: dict[int, str] = {}
    ends: dict[int, str] = {}
    for name in what:
        if name == "first":
            looks[name], ends[0] = _First(started_ns), name
        else:
            begins[first] = name
            first += steps
            ends[first] = name
    found: dict[str, Figures | None] = {}

    def show(done: int, total: int) -> None:
        if done in ends and ends[done] not in found:
            found[ends[done]] = looks[ends[done]].end()
        if done in begins and begins[done] not in found:
            looks[begins[done]].begin()

    @contextlib.contextmanager
    def task(self: Progress, name: str, unit: str, detail: Callable[[], str] = str) -> Iterator[_Show]:
        yield show if name == "training" else lambda done, total: None

    Progress.task = task  # type: ignore[method-assign]
    from dlio_torch.cli import main as command

    code = command(arguments)
    output.write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    started, names, number, count, out, *words = sys.argv[1:]
    raise SystemExit(main(int(started), names.split(","), int(number), int(count), Path(out), words))
