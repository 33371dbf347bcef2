"""Starts the tool in processes and measures their time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import Unavailable

HEAVY = ("torch", "torchdata", "h5py", "pandas", "numpy", "rich", "pyarrow", "netCDF4", "PIL", "matplotlib")
"""Packages whose import takes longer than what a verb that only talks needs."""

_LOOK = """
import sys
from dlio_torch.cli import main
out, sys.argv[1:2] = sys.argv[1], []
code = main(sys.argv[1:])
names = sorted(sys.modules)
import json
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
json.dump({"modules": names, "peak_bytes": int(status["VmHWM"].split()[0]) * 1024}, open(out, "w"))
raise SystemExit(code)
"""

EMPTY = (
    "run", "recipe=minimal", "scale=paper", "dataset=synthetic", "dataset.num_files=1",
    "dataset.samples_per_file=1000000",
    "dataset.fields=[{name: data, shape: [4]}]", "train.batch_size=1", "train.epochs=1", "compute=none",
    "loader.replay=batches", "storage.limits=off", "output.progress=false",
)  # fmt: skip
"""Steps in which nothing is done: batches that lie in memory, no compute, no data set on disk."""


def command(arguments: Sequence[str], folder: Path | None = None) -> dict[str, float]:
    """Runs ``python -m dlio_torch``; returns wall-clock and processor seconds.

    Raises:
        Unavailable: it failed.
    """
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "dlio_torch", *arguments], cwd=folder, stdout=said, stderr=said, env=_environment()
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise Unavailable(f"{' '.join(arguments)} failed: {_last(said.read().decode())}")
    return {"s": seconds, "cpu_s": used.ru_utime + used.ru_stime}


def look(arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Modules (``modules``) and peak memory (``peak_bytes``) of a verb at its end.

    Raises:
        Unavailable: it failed.
    """
    out = folder / "look.json"
    _do(["-c", _LOOK, str(out), *arguments], folder)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def heavy(names: Sequence[str]) -> list[str]:
    """The packages of :data:`HEAVY` that are among the modules."""
    return [name for name in HEAVY if name in set(names)]


def probe(what: Sequence[str], first: int, steps: int, arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Runs :mod:`benchmarks.own.probe`; adds ``train.steps`` and ``output.dir``.

    Args:
        what: to look at.
        first: step from which on is looked.
        steps: that each takes.
        arguments: of the command line.
        folder: for results.

    Returns:
        What was found, by ``what``.

    Raises:
        Unavailable: it failed.
    """
    out = Path(tempfile.mkdtemp(dir=folder))
    # A step more: the trainer tells of the last one twice.
    where = [f"output.dir={out / 'run'}", f"train.steps={first + len(what) * steps + 1}"]
    started = time.perf_counter_ns()
    options = [str(started), ",".join(what), str(first), str(steps), str(out / "found")]
    _do(["-m", "benchmarks.own.probe", *options, *arguments, *where], folder)
    found: dict[str, Any] = json.loads((out / "found").read_text())
    return found


def _do(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(_last(done.stderr))


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
