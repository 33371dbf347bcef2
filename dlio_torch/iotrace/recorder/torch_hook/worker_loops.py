"""Patch of the loop of loader workers: for which loader they work, and for which batch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dlio_torch.iotrace.recorder.torch_hook.guards import guarded
from dlio_torch.iotrace.recorder.torch_hook.patched_names import process_configuration
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder

if TYPE_CHECKING:
    from dlio_torch.iotrace.recorder.torch_hook.iterations import Iteration

_KEY = "dlio_torch_task"  # of the configuration that multiprocessing passes to its children, however it starts them
_QUEUE, _NUMBER = 2, 10  # arguments of the loop


class WorkerTask:
    """Task of a loader worker: the loader that it serves, and the batch that it makes.

    Args:
        loader: number of the loader in the parent process; None if it is not known.
        dataset: number of the data set in the parent process.
        number: number of the worker.

    Attributes:
        step: the batch that it makes.
    """

    def __init__(self, loader: int | None, dataset: int, number: int) -> None:
        self.loader, self.dataset, self.number = loader, dataset, number
        self.step = -1


class _TaskQueue:
    """The queue from which a worker takes its tasks; notes the number of the batch."""

    def __init__(self, queue: Any, task: WorkerTask) -> None:
        self._queue, self._task = queue, task

    def get(self, *arguments: Any, **named: Any) -> Any:
        """Takes a task: a tuple of batch number and keys, or a message."""
        message = self._queue.get(*arguments, **named)
        if type(message) is tuple and type(message[0]) is int:
            self._task.step = message[0]
        return message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@contextlib.contextmanager
def task_for(iteration: Iteration | None) -> Iterator[None]:
    """Context in which workers of an iteration are started."""
    configuration = process_configuration()
    if iteration is None:
        yield
        return
    before = configuration.get(_KEY)
    configuration[_KEY] = (iteration.loader, iteration.dataset)
    try:
        yield
    finally:
        if before is None:
            configuration.pop(_KEY, None)
        else:
            configuration[_KEY] = before


def patch_worker_loop(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches the worker loop of torch or torchdata."""
    original: Any = module._worker_loop
    begin = guarded(recorder, _begin_worker)

    @functools.wraps(original)
    def _worker_loop(*arguments: Any, **named: Any) -> Any:
        changed = begin(recorder, arguments)
        return original(*(arguments if changed is None else changed), **named)

    module._worker_loop = _worker_loop  # type: ignore[attr-defined]


def begin_worker(recorder: TorchRecorder, number: int) -> WorkerTask:
    """Notes that this process is a worker, by the configuration that it got from its parent."""
    configuration = process_configuration()
    loader, dataset = configuration.get(_KEY, (None, -1))
    task = WorkerTask(loader, dataset, number)
    recorder.begin_worker(task)
    return task


def _begin_worker(recorder: TorchRecorder, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    queue = _TaskQueue(arguments[_QUEUE], begin_worker(recorder, arguments[_NUMBER]))
    return (*arguments[:_QUEUE], queue, *arguments[_QUEUE + 1 :])
