"""Tasks that run at the same time, each in a forked process, and the rate at which they work.

A task prepares, waits until all others are ready, and works until its time is over or its work is done.  The calling
process must be single-threaded and must not have used CUDA: :mod:`dlio_torch.node.limits.measuring_process` is.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from threading import BrokenBarrierError
from typing import Any

import psutil

from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.supervision.parent_exit import die_with_parent

_PREPARATION_S = 300.0
_GRACE_S = 60.0  # for the last batch of a task, and the end of its process
_POLL_S = 1.0
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Amount:
    """Work that a task has done since its last one.

    Attributes:
        samples: number of samples.
        bytes: their bytes, as the task counts them.
        seconds: time that it took, for tasks with a clock of their own; ``None``: the time since the last amount.
    """

    samples: int = 0
    bytes: float = 0.0
    seconds: float | None = None


Task = Callable[[], Iterator[Amount]]
"""Generator function of a task: it yields once when it is ready, and then after each batch."""


@dataclass(frozen=True)
class TaskProgress:
    """Work of one process.

    Attributes:
        samples: number of samples.
        bytes: their bytes.
        seconds: time that they took.
        is_done: the work was done before the time was over.
        device_bytes: bytes that storage devices delivered to the process; 0 where the system does not count them.
    """

    samples: int
    bytes: float
    seconds: float
    is_done: bool
    device_bytes: int = 0


@dataclass(frozen=True)
class Rate:
    """Rate of several processes that worked at the same time.

    Attributes:
        samples: number of samples of all processes.
        bytes: their bytes.
        device_bytes: bytes that storage devices delivered meanwhile.
        samples_per_s: samples per second.
        bytes_per_s: bytes per second.
        seconds: length of the measurement.
    """

    samples: int
    bytes: float
    device_bytes: int
    samples_per_s: float
    bytes_per_s: float
    seconds: float

    @classmethod
    def of(cls, progress: Sequence[TaskProgress]) -> Rate:
        """The sum of the processes' rates; of limited work, all work over the time of the slowest process.

        Raises:
            RunFailed: no process has done anything.
        """
        samples, size = sum(each.samples for each in progress), sum(each.bytes for each in progress)
        longest = max((each.seconds for each in progress), default=0.0)
        if not samples or longest <= 0:
            raise RunFailed("no batch was completed in the time of the measurement", hint="measure for longer")
        device_bytes = sum(each.device_bytes for each in progress)
        if any(each.is_done for each in progress):
            return cls(samples, size, device_bytes, samples / longest, size / longest, longest)
        busy = [each for each in progress if each.seconds > 0]
        samples_per_s = sum(each.samples / each.seconds for each in busy)
        bytes_per_s = sum(each.bytes / each.seconds for each in busy)
        return cls(samples, size, device_bytes, samples_per_s, bytes_per_s, longest)

    @classmethod
    def in_sequence(cls, rates: Sequence[Rate]) -> Rate:
        """The mean rate of measurements that followed each other."""
        seconds = sum(rate.samples / rate.samples_per_s for rate in rates)
        samples, size = sum(rate.samples for rate in rates), sum(rate.bytes for rate in rates)
        device_bytes = sum(rate.device_bytes for rate in rates)
        return cls(samples, size, device_bytes, samples / seconds, size / seconds, seconds)

    def in_pieces(self, pieces: float) -> Rate:
        """The rate in pieces of samples, so many of each."""
        return replace(self, samples_per_s=self.samples_per_s * pieces)


def run_tasks(tasks: Sequence[Task], seconds: float) -> list[TaskProgress]:
    """Run each task in a process of its own; returns their work in the same order.

    Args:
        tasks: at least one.
        seconds: time after which a task ends with the batch that it works on; ``inf``: tasks end by themselves.

    Raises:
        DlioError: a task failed, or its process was killed.
    """
    barrier = _FORK.Barrier(len(tasks))
    pipes = [_FORK.Pipe(duplex=False) for _ in tasks]
    processes = [
        _FORK.Process(target=_run, args=(task, sender, barrier, seconds, os.getpid()))
        for task, (_, sender) in zip(tasks, pipes, strict=True)
    ]
    try:
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()  # so that the end of the process is seen
        return _results(processes, [receiver for receiver, _ in pipes], barrier)
    finally:
        _end(processes)
        for receiver, sender in pipes:
            receiver.close()
            sender.close()


def _results(processes: Sequence[Any], receivers: Sequence[Connection], barrier: Any) -> list[TaskProgress]:
    """TaskProgress of each process.

    Raises:
        DlioError: of the first process that failed by itself, and not because another one did.
    """
    results: list[Any] = []
    for process, receiver in zip(processes, receivers, strict=True):
        wait([receiver, process.sentinel])
        if receiver.poll():
            results.append(receiver.recv())
            continue
        barrier.abort()
        process.join()
        results.append(RunFailed(f"a process of the measurement {_exit_text(process.exitcode)}"))
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error if isinstance(error, DlioError) else RunFailed("the processes of the measurement were not ready")
    return results


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _end(processes: Sequence[Any]) -> None:
    """Wait for the end of processes that have sent their results; kill them if one of them failed."""
    started = [process for process in processes if process.pid is not None]
    deadline = time.monotonic() + _GRACE_S
    while any(process.exitcode is None for process in started) and not any(process.exitcode for process in started):
        if time.monotonic() >= deadline:
            break
        wait([process.sentinel for process in started if process.exitcode is None], _POLL_S)
    for process in started:
        process.kill()
        process.join()
        process.close()


def _run(task: Task, sender: Connection, barrier: Any, seconds: float, parent: int) -> None:
    """Run a task in its process, and send its progress, or the error in its place."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    try:
        sender.send(_progress(task(), barrier, seconds))
    except BaseException as error:
        barrier.abort()
        sender.send(error if isinstance(error, DlioError | BrokenBarrierError) else RunFailed(repr(error)))
        sys.exit(1)


def _progress(work: Iterator[Amount], barrier: Any, seconds: float) -> TaskProgress:
    next(work)  # it is ready
    barrier.wait(_PREPARATION_S)
    device_bytes = _device_bytes()
    samples, size, measured, is_timed = 0, 0.0, 0.0, True
    began = time.perf_counter()
    deadline = began + seconds
    is_done = True
    for amount in work:
        samples, size = samples + amount.samples, size + amount.bytes
        is_timed = is_timed and amount.seconds is None
        measured += amount.seconds or 0.0
        if time.perf_counter() >= deadline and samples:
            is_done = False
            break
    elapsed, device_bytes = time.perf_counter() - began, _device_bytes() - device_bytes
    work.close()  # type: ignore[attr-defined]  # tasks are generators
    is_done = is_done and math.isfinite(seconds)
    return TaskProgress(samples, size, elapsed if is_timed else measured, is_done, device_bytes)


def _device_bytes() -> int:
    try:
        return int(psutil.Process().io_counters().read_bytes)
    except (psutil.Error, OSError, AttributeError):
        return 0
