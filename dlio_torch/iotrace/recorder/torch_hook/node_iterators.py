"""Patches of ``torchdata.nodes``: batches and epochs of loaders, items of their functions, keys of their samplers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook import node_descriptions
from dlio_torch.iotrace.recorder.torch_hook.guards import guarded, hide
from dlio_torch.iotrace.recorder.torch_hook.iterations import Iteration, index_of
from dlio_torch.iotrace.recorder.torch_hook.iterator_methods import beginning, fetching
from dlio_torch.iotrace.recorder.torch_hook.patched_names import mapper_iterator
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import ITERATION, TorchRecorder, clock
from dlio_torch.iotrace.recorder.torch_hook.worker_loops import begin_worker

_BATCH = "_dlio_torch_batch_size"  # attribute of a node without sources


def patch_node_loader(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.nodes.loader``."""
    iterator: Any = module.LoaderIterator
    iterator.reset = beginning(iterator.reset, recorder, functools.partial(_begin_iteration, recorder))
    iterator.next = fetching(iterator.next, recorder, _before_batch, _iteration_of)


def patch_node_functions(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.nodes._apply_udf``, the loop of the workers of a node."""
    original: Any = module._apply_udf
    begin = guarded(recorder, begin_worker)

    @functools.wraps(original)
    def _apply_udf(worker_id: int, in_q: Any, out_q: Any, udf: Any, *rest: Any, **named: Any) -> Any:
        if threading.get_ident() == threading.main_thread().ident:  # of a process of its own
            begin(recorder, worker_id)
        return original(worker_id, in_q, out_q, _timed(udf, recorder), *rest, **named)

    module._apply_udf = _apply_udf  # type: ignore[attr-defined]


def patch_node_mapper(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.nodes.map``: nodes without workers."""
    mapper = mapper_iterator(module)
    original = mapper.__init__

    @functools.wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.map_fn = _timed(self.map_fn, recorder)

    mapper.__init__ = __init__


def patch_node_adapters(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.nodes.adapters``: keys of samplers, and items of iterables."""
    wrapped: Any
    for wrapped, is_sampler in ((module.SamplerWrapper, True), (module.IterableWrapper, False)):
        wrapped.next = _source(wrapped.next, recorder, is_sampler=is_sampler)


def _begin_iteration(recorder: TorchRecorder, iterator: Any, *_: Any) -> Iteration:
    loader = iterator.loader
    iteration = recorder.begin_iteration(loader, node_descriptions, iterator, has_keys=True)
    for node in node_descriptions.nodes_of(loader):
        if "sampler" in vars(node) or "iterable" in vars(node):
            setattr(node, ITERATION, iteration)
            setattr(node, _BATCH, node_descriptions.batch_size(loader) or 1)
    return iteration


def _iteration_of(iterator: Any) -> Iteration | None:
    """The iteration of a loader's iterator, unless its next batch was fetched to know whether there is one.

    That was recorded then.
    """
    state = vars(iterator)
    iteration: Iteration | None = state.get(ITERATION) if state.get("_cached_item") is None else None
    return iteration


def _before_batch(iteration: Iteration, iterator: Any) -> int:
    return iteration.recorder.activity.begin()


def _timed(function: Any, recorder: TorchRecorder) -> Any:
    """The function of a node, with a record of each item that it makes."""
    record = guarded(recorder, recorder.add)
    number = guarded(recorder, recorder.known_dataset)(node_descriptions.reader_of(function))
    # Other functions change what was read.
    op, file = ("collate", None) if number is None else ("sample", f"dataset {number}")

    @functools.wraps(function, updated=())
    def call(item: Any) -> Any:
        start_ns = clock()
        try:
            result = function(item)
        except BaseException as error:
            hide(error)
            raise
        record(op, start_ns, clock(), file=file, offset=item if type(item) is int else index_of(item))
        return result

    return call


def _source(original: Callable[[Any], Any], recorder: TorchRecorder, *, is_sampler: bool) -> Callable[[Any], Any]:
    """``next`` of a node without sources: keys of a sampler, or an item of an iterable."""
    gave, record = guarded(recorder, _record_keys), guarded(recorder, recorder.add)
    number = guarded(recorder, recorder.dataset_number)

    @functools.wraps(original)
    def next_item(self: Any) -> Any:
        start_ns = clock()
        try:
            item = original(self)
        except BaseException as error:
            hide(error)
            raise
        if is_sampler or type(item) is int:
            gave(self, item)
        else:
            record("sample", start_ns, clock(), file=f"dataset {number(self.iterable)}")
        return item

    return next_item


def _record_keys(node: Any, keys: Any) -> None:
    iteration = vars(node).get(ITERATION)
    if iteration is None:
        return
    if type(keys) is int:
        iteration.gave_one(keys, vars(node)[_BATCH])
    else:
        iteration.gave(keys)
