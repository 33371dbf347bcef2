"""Patches of the iterators of ``DataLoader`` and ``StatefulDataLoader``: batches, epochs, indices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook import descriptions
from dlio_torch.iotrace.recorder.torch_hook.fetchers import STEP
from dlio_torch.iotrace.recorder.torch_hook.guards import guarded, hide
from dlio_torch.iotrace.recorder.torch_hook.iterations import Iteration
from dlio_torch.iotrace.recorder.torch_hook.patched_names import dataset_kind, iterator_base
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import ITERATION, TorchRecorder
from dlio_torch.iotrace.recorder.torch_hook.worker_loops import task_for

_FETCHER = "_dataset_fetcher"  # torch's, of an iterator without workers


def patch_iterators(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.utils.data.dataloader``."""
    base = iterator_base(module)
    base.__next__ = _next(base.__next__, recorder)
    base._next_index = _next_index(base._next_index, recorder)
    _patch_begin(module, recorder, "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    recorder.announce()


def patch_stateful_iterators(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.stateful_dataloader.stateful_dataloader``, whose iterators have the same base."""
    _patch_begin(module, recorder, "_StatefulSingleProcessDataLoaderIter", "_StatefulMultiProcessingDataLoaderIter")


def _patch_begin(module: ModuleType, recorder: TorchRecorder, *names: str) -> None:
    for name in names:
        kind: Any = getattr(module, name)
        kind.__init__ = _begin(kind.__init__, recorder)
        kind._reset = _reset(kind._reset, recorder)


def _begin(original: Callable[..., None], recorder: TorchRecorder) -> Callable[..., None]:
    """``__init__`` of an iterator: an iteration begins."""
    begin, end = guarded(recorder, _begin_iteration), guarded(recorder, Iteration.start)

    @functools.wraps(original)
    def __init__(self: Any, loader: Any, *rest: Any, **named: Any) -> None:
        iteration = begin(recorder, self, loader)
        try:
            with task_for(iteration):
                original(self, loader, *rest, **named)
        except BaseException as error:
            hide(error)
            raise
        finally:
            if iteration is not None:
                end(iteration)

    return __init__


def _reset(original: Callable[..., None], recorder: TorchRecorder) -> Callable[..., None]:
    """``_reset`` of an iterator: unless it is called by ``__init__``, another iteration begins."""
    begin, end = guarded(recorder, _begin_iteration), guarded(recorder, Iteration.start)

    @functools.wraps(original)
    def reset(self: Any, loader: Any, *rest: Any, **named: Any) -> None:
        current = vars(self).get(ITERATION)
        if current is None or current.is_starting:
            original(self, loader, *rest, **named)
            return
        iteration = begin(recorder, self, loader)
        try:
            original(self, loader, *rest, **named)
        except BaseException as error:
            hide(error)
            raise
        finally:
            if iteration is not None:
                end(iteration)

    return reset


def _begin_iteration(recorder: TorchRecorder, iterator: Any, loader: Any) -> Iteration:
    return recorder.begin_iteration(loader, descriptions, iterator, has_keys=dataset_kind(loader) == 0)


def _next(original: Callable[[Any], Any], recorder: TorchRecorder) -> Callable[[Any], Any]:
    """``__next__`` of an iterator: the program asks for a batch."""
    before, after = guarded(recorder, _before_batch), guarded(recorder, Iteration.after_batch)
    ended = guarded(recorder, Iteration.after_last)

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        iteration = vars(self).get(ITERATION)
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

    return __next__


def _before_batch(iteration: Iteration, iterator: Any) -> int:
    fetcher = vars(iterator).get(_FETCHER)
    if fetcher is not None:
        setattr(fetcher, STEP, iteration.batch)
    return iteration.recorder.activity.begin()


def _next_index(original: Callable[[Any], Any], recorder: TorchRecorder) -> Callable[[Any], Any]:
    """``_next_index`` of an iterator: the sampler gives the keys of a batch."""
    gave = guarded(recorder, Iteration.gave)

    @functools.wraps(original)
    def next_index(self: Any) -> Any:
        try:
            keys = original(self)
        except BaseException as error:
            hide(error)
            raise
        iteration = vars(self).get(ITERATION)
        if iteration is not None:
            gave(iteration, keys)
        return keys

    return next_index
