"""Starts commands as forks of a process that has imported everything, which saves seconds per command.

What such a process does is the same from the first argument on: it has its own session, its own standard streams, and
begins with ``dlio_torch.__main__.main``.  The library that counts calls is there, and wakes up in the fork.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlio_torch.supervision.run_process import environment

_MODULES = (
    *(
        "cli",
        "commands.run",
        "commands.inspect",
        "commands.reports",
        "commands.record",
        "study.session",
        "study.strategies.search.search",
    ),
    *("execution", "execution.training", "execution.staged_data", "execution.summary", "execution.preparation"),
    *("execution.pipeline", "preflight.dry_run", "clean", "doctor"),
    *("report.html", "study.page.study_page", "iotrace.timeline.chrome_trace", "iotrace.figures.io_metrics"),
    "report.run_tables",
    *("formats.hdf5.format", "formats.tfrecord.format"),
    *("data.engines.decoupled.engine", "data.engines.decoupled.worker_engine"),
)


class Nursery:
    """The process that is forked; runs one command at a time.

    Args:
        library: counts calls.
        variables: of its environment beside those of this process.
    """

    def __init__(self, library: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kills.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment(), "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def run(
        self, arguments: Sequence[str], home: Path, said: Path, variables: Mapping[str, str], patience_s: float
    ) -> int | None:
        """Runs a command to its end; returns its exit code (negative: the signal), or ``None`` if it does not end.

        Args:
            arguments: of ``python -m dlio_torch``.
            home: working folder.
            said: file for what it prints.
            variables: of its environment.
            patience_s: then it is killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"arguments": list(arguments), "home": str(home), "said": str(said), "variables": dict(variables)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        late = not select.select([self._process.stdout], [], [], patience_s)[0]
        if late:
            os.killpg(pid, signal.SIGKILL)
        code = int(self._process.stdout.readline())
        return None if late else code

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve() -> None:
    for name in _MODULES:
        importlib.import_module(f"dlio_torch.{name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("matplotlib.figure")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(order)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(order: dict[str, Any]) -> None:
    """Runs the command in the fork; never returns."""
    import ctypes

    code = 1
    try:
        os.setsid()
        os.chdir(order["home"])
        said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, said), (2, said)):
            os.dup2(source, target)
        os.environ.update(order["variables"])
        sys.argv = ["dlio_torch", *order["arguments"]]
        sys.orig_argv = [sys.executable, "-m", "dlio_torch", *order["arguments"]]
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ctypes.CDLL(None).kill_points_begin()
        from dlio_torch.__main__ import main

        code = main()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        import atexit

        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code)


if __name__ == "__main__":
    _serve()
