"""Saves in the background: PyTorch's staging and executors, and when a save is complete."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import PreconditionError
from dlio_torch.syserrors import refused

if TYPE_CHECKING:
    from torch.distributed.checkpoint.staging import DefaultStager

_PROCESS = "checkpoint.async_save=process"
_THREAD = "set checkpoint.async_save=thread"
_ADDRESS = "MASTER_ADDR"


@dataclass
class RunningSave:
    """A save that may not be complete.

    Attributes:
        step: training steps done.
        start_ns: begin, by ``time.perf_counter_ns``.
        flushes: whether it flushes.
        parts: times of its parts.
        stall_ns: nanoseconds in which the training stood still.
        end_ns: time at which it was complete.
        future: outcome; None: the save is complete.
    """

    step: int
    start_ns: int
    flushes: bool
    parts: PartTimes
    stall_ns: int = 0
    end_ns: int = 0
    future: Future[Any] | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def follow(self, future: Future[Any]) -> None:
        """Take the time when ``future`` has its outcome."""
        self.future = future
        future.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """Take the time: the save has ended."""
        self.end_ns = time.perf_counter_ns()
        self.ended.set()


def start_save(options: CheckpointConfig, parts: PartTimes, state: dict[str, Any], **arguments: Any) -> Future[Any]:
    """Copy the state, and save the copy in a thread or in a process; returns when the copy is there.

    Args:
        options: of the checkpoints.
        parts: gets the time of copying.
        state: what is saved.
        arguments: of ``async_save``.
    """
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

    kind = AsyncCheckpointerType.PROCESS if options.async_save == "process" else AsyncCheckpointerType.THREAD
    stager = _stager(options, parts)
    response: Any = async_save(state, async_checkpointer_type=kind, async_stager=stager, **arguments)
    future: Future[Any] = getattr(response, "upload_completion", response)
    # As PyTorch does with a stager that it has made itself: nothing is kept for the next save.
    future.add_done_callback(lambda _: stager.close())
    return future


def check_background(options: CheckpointConfig) -> None:
    """Refuse saves by a process that this machine cannot start.

    Raises:
        PreconditionError: no process can be started, or no port is free.
    """
    if options.async_save != "process":
        return
    if multiprocessing.current_process().daemon:
        raise PreconditionError(f"{_PROCESS}: this process is a daemon, which may not start processes", hint=_THREAD)
    try:
        subprocess.run([sys.executable, "-S", "-E", "-c", ""], check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise refused(f"{_PROCESS}: a process cannot be started", error, elsewhere=_THREAD) from error
    try:
        socket.create_server(("", 0)).close()
    except OSError as error:
        raise refused(f"{_PROCESS}: no port is free for it", error, elsewhere=_THREAD) from error


def announce_host(address: str) -> Callable[[], None]:
    """Name the first rank's host to PyTorch's checkpoint process, which looks there; returns what takes it back."""
    if _ADDRESS in os.environ:
        return lambda: None
    os.environ[_ADDRESS] = address
    return lambda: (os.environ.pop(_ADDRESS, None), None)[1]


def _stager(options: CheckpointConfig, parts: PartTimes) -> DefaultStager:
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    class TimedStager(DefaultStager):
        def stage(self, state_dict: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            staged = super().stage(state_dict, **kwargs)
            parts.stage_ns = time.perf_counter_ns() - start
            return staged

    pinned = options.pinned_staging
    # Without pinned memory these are the options of async_save's own stager.
    shared = pinned and options.async_save == "process"
    return TimedStager(StagingOptions(pinned, shared, use_async_staging=False, use_non_blocking_copy=pinned))
