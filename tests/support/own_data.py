"""Commands on data that dlio_torch has not made, beside the system calls that strace sees of them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ranks import clean_environ
from strace import READS, Call, need_strace, trace


def python(*arguments: str, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
    """Output of one call of the interpreter, which ends well and without a traceback.

    Args:
        arguments: of the interpreter.
        cwd: the folder in which it runs.
        environ: further variables.
    """
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, env=clean_environ() | dict(environ or {}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


def command(*arguments: str, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
    """Output of one command of dlio_torch; arguments as of :func:`python`."""
    return python("-m", "dlio_torch", *arguments, cwd=cwd, environ=environ)


def traced_command(folder: Path, *arguments: str) -> list[Call]:
    """The system calls of one command in a folder."""
    need_strace()
    traced = [sys.executable, "-m", "dlio_torch", *arguments]
    return trace(traced, folder / "strace", cwd=folder, env=clean_environ())


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of the run with ``output.dir=run`` in a folder."""
    content: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return content


def training_reads(calls: Sequence[Call], data: Path) -> list[Call]:
    """The read calls of :func:`training_calls` that read something."""
    return [call for call in training_calls(calls, data) if call.name in READS and call.result > 0]


def training_calls(calls: Sequence[Call], data: Path) -> list[Call]:
    """All calls of the training, which is what lies between the two looks at the kernel's counters.

    Args:
        calls: of the whole command.
        data: file or folder that is read in the training.
    """
    looks = [i for i, call in enumerate(calls) if re.fullmatch(r"/proc/\d+/io", call.path) and call.result > 0]
    windows = [calls[first:last] for first, last in itertools.pairwise(looks)]
    training = [part for part in windows if any(call.path.startswith(str(data)) for call in part)]
    assert len(training) == 1
    return list(training[0])
