"""Activity of readers: a clause that says what loader workers or reader threads do, for the line about a late batch."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import dlio_torch
from dlio_torch.supervision.thread_states import ThreadState, thread_state, threads_of

_PACKAGE = str(Path(dlio_torch.__file__).parent)
_MAX_NAMED = 4  # readers in one line
_READER = "reader"  # prefix of the names of reader threads


def describe_readers(workers: Sequence[BaseProcess]) -> str:
    """Describes worker processes, or the reader threads of this process if there are none.

    Readers that only wait for others are left out unless all do.

    Args:
        workers: in the order of their numbers.
    """
    described = [_worker(number, worker) for number, worker in enumerate(workers)] if workers else _threads()
    clauses = [text for text, informative in described if informative] or [text for text, _ in described]
    more = f", and {len(clauses) - _MAX_NAMED} more" if len(clauses) > _MAX_NAMED else ""
    return "; ".join(clauses[:_MAX_NAMED]) + more


def innermost_function(frame: FrameType | None, without: str | None = None) -> str:
    """The innermost function of this package on a stack, as ``name (file:line)``; empty if there is none.

    Args:
        frame: top of the stack.
        without: folder of modules to leave out.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and not (without and name.startswith(without)):
            return f"{frame.f_code.co_name} ({Path(name).relative_to(_PACKAGE)}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


def _worker(number: int, worker: BaseProcess) -> tuple[str, bool]:
    name = f"worker {number} (pid {worker.pid})"
    threads = list(threads_of(worker.pid or -1))
    if not threads:
        return f"{name} has ended", True
    thread = next((thread for thread in threads if thread.is_informative), threads[0])
    return f"{name} {thread}", thread.is_informative


def _threads() -> list[tuple[str, bool]]:
    described = []
    frames = sys._current_frames()
    main = threading.main_thread()
    readers = [thread for thread in threading.enumerate() if thread.name.startswith(_READER)]
    of_python = {thread.native_id for thread in threading.enumerate()}
    for native in threads_of(os.getpid()):
        if native.name.startswith(_READER) and native.tid not in of_python:
            described.append((f"thread {native.name!r} {native}", _is_informative(native)))
    for thread in readers or ([] if described else [main]):
        # The number of the main thread is that of the process, also in a forked process.
        state = thread_state(os.getpid(), os.getpid() if thread is main else thread.native_id or -1)
        if state is not None:
            name = f"thread {thread.name!r}" if thread is not main else "this process"
            function = innermost_function(frames.get(thread.ident or -1)) if _is_informative(state) else ""
            described.append((f"{name} {state}{f' in {function}' if function else ''}", _is_informative(state)))
    return described


def _is_informative(state: ThreadState) -> bool:
    return state.is_informative or state.state == "R"
