"""Process that is still writing the results in a folder: of a run, of a turn of an elastic run, or of a recording."""

from __future__ import annotations

from typing import Literal, NamedTuple

import psutil

from dlio_torch.errors import DataError
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.run_directory.run_state import RunState


class RunningProcess(NamedTuple):
    """A process of this host that writes results, and their kind."""

    kind: Literal["run", "recording"]
    pid: int


def running_process(directory: RunDir) -> RunningProcess | None:
    """The process of this host that is writing the results in a folder; ``None``: there is none."""
    for state in states(directory):
        if state is not None and state.state == "running" and state.why_early() is None:
            return RunningProcess("run", state.pid)
    return _recording(directory)


def states(directory: RunDir) -> list[RunState | None]:
    """State of a run, and of the turns of an elastic run; ``None`` for each that is not written or damaged."""
    turns = [RunDir(path) for path in sorted(directory.path.glob("turn-*"))] if directory.elastic.exists() else []
    return [run_state.read(part.state) for part in (directory, *turns)]


def _recording(directory: RunDir) -> RunningProcess | None:
    if not directory.command.exists():
        return None
    try:
        about = directory.read_json(directory.command)
        process = None if "runtime_s" in about else psutil.Process(int(about["pid"]))
        if process is not None and abs(process.create_time() * 1e9 - int(about["process_started_ns"])) < 2e9:
            return RunningProcess("recording", process.pid)
    except (DataError, KeyError, TypeError, ValueError, psutil.Error):
        pass  # damaged, of an earlier version, or of a process that has ended
    return None
