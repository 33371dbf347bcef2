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
from dlio_torch.iotrace.recorder.torch_hook.patched_names import mapper_iterator
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import ITERATION, TorchRecorder, clock
from dlio_torch.iotrace.recorder.torch_hook.worker_loops import begin_worker, task_for

_BATCH = "_dlio_torch_batch_size"  # attribute of a node without sources


def patch_node_loader(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torchdata.nodes.loader``."""
    iterator: Any = module.LoaderIterator
    iterator.reset = _reset(iterator.reset, recorder)
    iterator.next = _next(iterator.next, recorder)


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


def _reset(original: Callable[..., None], recorder: TorchRecorder) -> Callable[..., None]:
    """``reset`` of a loader's iterator: an iteration begins."""
    begin, start = guarded(recorder, _begin_iteration), guarded(recorder, Iteration.start)

    @functools.wraps(original)
    def reset(self: Any, *arguments: Any, **named: Any) -> None:
        iteration = begin(recorder, self)
        try:
            with task_for(iteration):
                original(self, *arguments, **named)
        finally:
            if iteration is not None:
                start(iteration)

    return reset


def _begin_iteration(recorder: TorchRecorder, iterator: Any) -> Iteration:
    loader = iterator.loader
    iteration = recorder.begin_iteration(loader, node_descriptions, iterator, has_keys=True)
    for node in node_descriptions.nodes_of(loader):
        if "sampler" in vars(node) or "iterable" in vars(node):
            setattr(node, ITERATION, iteration)
            setattr(node, _BATCH, node_descriptions.batch_size(loader) or 1)
    return iteration


def _next(original: Callable[[Any], Any], recorder: TorchRecorder) -> Callable[[Any], Any]:
    """``next`` of a loader's iterator: the program asks for a batch."""
    begin = guarded(recorder, recorder.activity.begin)
    after, ended = guarded(recorder, Iteration.after_batch), guarded(recorder, Iteration.after_last)

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        iteration = vars(self).get(ITERATION)
        # A batch that was fetched to know whether there is one was recorded then.
        if iteration is None or vars(self).get("_cached_item") is not None:
            return original(self)
        start_ns = begin()
        try:
            data = original(self)
        except BaseException as error:
            ended(iteration, is_last=isinstance(error, StopIteration))
            hide(error)
            raise
        after(iteration, data, start_ns)
        return data

    return next_batch


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
