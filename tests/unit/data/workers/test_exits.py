"""A worker that died is told where the error reaches the program."""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.workers.descriptor_limits import OpenFiles
from dlio_torch.data.workers.exits import WorkerDied, WorkerLimits, WorkerSignals


@pytest.fixture
def interrupted() -> Iterator[Callable[[], None]]:
    """Makes a signal of a worker's death arrive here."""

    def of_torch(number: int, frame: FrameType | None) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. Details are lost due to ...")

    limits = WorkerLimits.now(LoaderConfig(num_workers=1), OpenFiles("dataloader", 1, 2, 2, 8, 10, 3))
    before = signal.signal(signal.SIGCHLD, WorkerSignals(of_torch, limits))
    try:
        yield lambda: signal.raise_signal(signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_error_is_raised_in_the_program(interrupted: Callable[[], None]) -> None:
    with pytest.raises(WorkerDied, match=r"a loader worker died: DataLoader worker \(pid 7\) is killed"):
        interrupted()


@contextlib.contextmanager
def in_collector(interrupted: Callable[[], None]) -> Iterator[Callable[[], Any]]:
    def called_back(phase: str, details: dict[str, int]) -> None:
        interrupted()

    gc.callbacks.append(called_back)
    try:
        yield gc.collect
    finally:
        gc.callbacks.remove(called_back)


@contextlib.contextmanager
def in_destructor(interrupted: Callable[[], None]) -> Iterator[Callable[[], Any]]:
    class Last:
        def __del__(self) -> None:
            interrupted()

    yield lambda: Last() and None


@pytest.mark.parametrize("place", [in_collector, in_destructor])
def test_no_error_is_raised_where_python_would_drop_it(
    place: Callable[..., contextlib.AbstractContextManager[Callable[[], Any]]], interrupted: Callable[[], None]
) -> None:
    """It is told later: pytest fails where an exception is dropped."""
    with place(interrupted) as go:
        go()
