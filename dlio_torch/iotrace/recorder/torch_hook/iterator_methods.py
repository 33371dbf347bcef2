"""Wrappers of the methods of loaders' iterators by which an iteration begins, and gives a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook.guards import guarded, hide
from dlio_torch.iotrace.recorder.torch_hook.iterations import Iteration
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder
from dlio_torch.iotrace.recorder.torch_hook.worker_loops import task_for


def beginning(
    original: Callable[..., None],
    recorder: TorchRecorder,
    begin: Callable[..., Iteration],
    is_part: Callable[[Any], bool] = lambda iterator: False,
) -> Callable[..., None]:
    """A method with which an iteration begins.

    Args:
        original: the method; may start workers.
        recorder: what records.
        begin: makes the iteration; called with the arguments of the method.
        is_part: whether a call belongs to an iteration that has begun; called with the iterator.
    """
    make, end = guarded(recorder, begin), guarded(recorder, Iteration.start)

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> None:
        if is_part(self):
            original(self, *arguments, **named)
            return
        iteration = make(self, *arguments)
        try:
            with task_for(iteration):
                original(self, *arguments, **named)
        except BaseException as error:
            hide(error)
            raise
        finally:
            if iteration is not None:
                end(iteration)

    return call


def fetching(
    original: Callable[[Any], Any],
    recorder: TorchRecorder,
    begin: Callable[[Iteration, Any], int],
    iteration_of: Callable[[Any], Iteration | None],
) -> Callable[[Any], Any]:
    """A method by which the program asks for a batch.

    Args:
        original: the method.
        recorder: what records.
        begin: notes the begin and returns its time in nanoseconds; called with iteration and iterator.
        iteration_of: the iteration of an iterator; ``None``: the call is not recorded.
    """
    before, after = guarded(recorder, begin), guarded(recorder, Iteration.after_batch)
    ended = guarded(recorder, Iteration.after_last)

    @functools.wraps(original)
    def call(self: Any) -> Any:
        iteration = iteration_of(self)
        if iteration is None:
            return original(self)
        start_ns = before(iteration, self)
        try:
            data = original(self)
        except BaseException as error:
            ended(iteration, is_last=isinstance(error, StopIteration))
            hide(error)
            raise
        after(iteration, data, start_ns)
        return data

    return call
