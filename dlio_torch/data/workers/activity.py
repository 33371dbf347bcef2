"""What the readers of batches do at this moment: for a line about one that does not come."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import dlio_torch
from dlio_torch.environment.tasks import Task, task_of, tasks_of

_PACKAGE = str(Path(dlio_torch.__file__).parent)
_MOST = 4  # readers that a line names
_READER = "reader"  # begins the names of threads that read


def doing(workers: Sequence[BaseProcess]) -> str:
    """What worker processes do, or, where there are none, what the threads of this process do that read.

    Args:
        workers: in the order of their numbers.
    """
    said = [_worker(number, worker) for number, worker in enumerate(workers)] if workers else _threads()
    # Who only waits for others says nothing, unless all do.
    telling = [text for text, tells in said if tells] or [text for text, _ in said]
    more = f", and {len(telling) - _MOST} more" if len(telling) > _MOST else ""
    return "; ".join(telling[:_MOST]) + more


def _worker(number: int, worker: BaseProcess) -> tuple[str, bool]:
    name = f"worker {number} (pid {worker.pid})"
    tasks = list(tasks_of(worker.pid or -1))
    if not tasks:
        return f"{name} has ended", True
    task = next((one for one in tasks if one.is_telling), tasks[0])
    return f"{name} {task}", task.is_telling


def _threads() -> list[tuple[str, bool]]:
    found = []
    frames = sys._current_frames()
    main = threading.main_thread()
    readers = [one for one in threading.enumerate() if one.name.startswith(_READER)]
    for thread in readers or [main]:
        # The number of the main thread is that of the process, also where that was forked.
        task = task_of(os.getpid(), os.getpid() if thread is main else thread.native_id or -1)
        if task is not None:
            name = f"thread {thread.name!r}" if thread is not main else "this process"
            at = _place(frames.get(thread.ident or -1))
            found.append((f"{name} {task}{at if _tells(task) else ''}", _tells(task)))
    return found


def _tells(task: Task) -> bool:
    return task.is_telling or task.state == "R"


def _place(frame: FrameType | None) -> str:
    """The innermost function of this package that a thread is in."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            return f" in {frame.f_code.co_name} ({Path(name).relative_to(_PACKAGE)}:{frame.f_lineno})"
        frame = frame.f_back
    return ""
