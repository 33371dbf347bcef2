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
from dlio_torch.iotrace.recorder.torch_hook.iterator_methods import beginning, fetching
from dlio_torch.iotrace.recorder.torch_hook.patched_names import dataset_kind, iterator_base, patch_reset
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import ITERATION, TorchRecorder

_FETCHER = "_dataset_fetcher"  # torch's, of an iterator without workers


def patch_iterators(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.utils.data.dataloader``."""
    base = iterator_base(module)
    base.__next__ = fetching(base.__next__, recorder, _before_batch, _iteration_of)
    base._next_index = _next_index(base._next_index, recorder)
    _patch_begin(module, recorder, "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    recorder.announce()


def patch_stateful_iterators(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.stateful_dataloader.stateful_dataloader``, whose iterators have the same base."""
    _patch_begin(module, recorder, "_StatefulSingleProcessDataLoaderIter", "_StatefulMultiProcessingDataLoaderIter")


def _patch_begin(module: ModuleType, recorder: TorchRecorder, *names: str) -> None:
    begin = functools.partial(_begin_iteration, recorder)
    for name in names:
        kind: Any = getattr(module, name)
        kind.__init__ = beginning(kind.__init__, recorder, begin)
        patch_reset(kind, functools.partial(beginning, recorder=recorder, begin=begin, is_part=_is_starting))


def _begin_iteration(recorder: TorchRecorder, iterator: Any, loader: Any, *_: Any) -> Iteration:
    return recorder.begin_iteration(loader, descriptions, iterator, has_keys=dataset_kind(loader) == 0)


def _is_starting(iterator: Any) -> bool:
    """Whether ``_reset`` is called by ``__init__``, so that no further iteration begins."""
    current = _iteration_of(iterator)
    return current is None or current.is_starting


def _iteration_of(iterator: Any) -> Iteration | None:
    iteration: Iteration | None = vars(iterator).get(ITERATION)
    return iteration


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
        iteration = _iteration_of(self)
        if iteration is not None:
            gave(iteration, keys)
        return keys

    return next_index
