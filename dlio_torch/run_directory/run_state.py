"""State of a run in a small file of its directory: running, done, or the reason why it ended early.

The file has its full size from the begin and is overwritten in place, so that the end of a run can be written on a full
file system, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from dlio_torch.files.atomic_file import replaced

State = Literal["running", "done", "failed"]

_BYTES = 4096  # a block of most file systems


@dataclass(frozen=True)
class RunState:
    """State of a run.

    Attributes:
        state: ``running`` until the run ends; it stays so if the run was killed before it could write its end.
        begun: begin of the run, wall-clock time in seconds since 1970.
        world_size: number of ranks.
        pid: process of rank 0.
        created: start of that process, wall-clock time.
        host: host of rank 0.
        ended: end of the run, wall-clock time; ``None`` while it is running.
        line: reason why it ended early, with the rank.
        exit_code: exit code of every rank; ``None`` while it is running.
    """

    state: State
    begun: float
    world_size: int
    pid: int
    created: float
    host: str
    ended: float | None = None
    line: str = ""
    exit_code: int | None = None

    def why_early(self) -> str | None:
        """Reason why the run ended early, in one line; ``None`` if the run is done or may still be running."""
        if self.state == "done":
            return None
        if self.state == "failed":
            return f"{self.line} (exit code {self.exit_code})" if self.exit_code else self.line
        if self.host != socket.gethostname():
            return (
                f"rank 0 (pid {self.pid}, host {self.host}) was killed before it could write a reason, or is still "
                "running on that host"
            )
        with contextlib.suppress(psutil.Error):
            if abs(psutil.Process(self.pid).create_time() - self.created) < 2:
                return None
        return f"rank 0 (pid {self.pid}, host {self.host}) was killed before it could write a reason"


def begin(path: Path, world_size: int) -> None:
    """Write that a run is running; rank 0 calls this.

    Raises:
        DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    process = psutil.Process()
    state = RunState("running", time.time(), world_size, process.pid, process.create_time(), socket.gethostname())
    with replaced(path) as file:
        file.write(_content(state))


def end(path: Path, line: str = "", exit_code: int = 0, *, failed: bool = True) -> None:
    """Write that a run has ended, unless an end is written already; never raises.

    Args:
        path: the file.
        line: reason why it ended early, with the rank.
        exit_code: exit code of every rank.
        failed: whether it ended early.
    """
    with contextlib.suppress(OSError):
        state = read(path)
        if state is None or state.state != "running":
            return
        values = asdict(state) | {"state": "failed" if failed else "done", "ended": time.time()}
        values |= {"line": " ".join(line.split()), "exit_code": exit_code}
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, _content(RunState(**values)), 0)
        finally:
            os.close(descriptor)


def read(path: Path) -> RunState | None:
    """Read the state of a run; ``None`` if the file is missing or damaged."""
    try:
        state = RunState(**json.loads(path.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return state if _is_valid(state) else None


def _is_valid(state: RunState) -> bool:
    """Whether the values from a file have the right types."""
    texts, numbers = (state.line, state.host), (state.begun, state.created)
    ended, code, pid = state.ended, state.exit_code, state.pid
    return (
        state.state in ("running", "done", "failed")
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(number, float | int) for number in numbers)
        and isinstance(state.world_size, int)
        and isinstance(pid, int)
        and 0 <= pid < 1 << 31
        and (ended is None or isinstance(ended, float | int))
        and (code is None or isinstance(code, int))
    )


def _content(state: RunState) -> bytes:
    while len(text := json.dumps(asdict(state), indent=1)) >= _BYTES:  # letters beyond ASCII take six bytes or more
        state = replace(state, line=state.line[: len(state.line) * 3 // 4])
    return text.encode("ascii").ljust(_BYTES - 1) + b"\n"
