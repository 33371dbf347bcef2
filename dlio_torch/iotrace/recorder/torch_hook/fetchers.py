"""Patches of the fetchers, which read the samples of a batch and collate them, in whichever process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dlio_torch.iotrace.recorder.run_queue import UNKNOWN, RunQueue
from dlio_torch.iotrace.recorder.span_adder import SpanAdder
from dlio_torch.iotrace.recorder.torch_hook.guards import guarded, hide
from dlio_torch.iotrace.recorder.torch_hook.iterations import index_of
from dlio_torch.iotrace.recorder.torch_hook.patched_names import fetcher_classes
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder, clock

STEP = "_dlio_torch_step"
"""Attribute of a fetcher without workers: the number of the batch."""
_PROBES = "_dlio_torch_probes"  # attribute of a fetcher
_FOR_BATCHES = "__getitems__"  # method of data sets that read a whole batch at once
_SUBSET = "torch.utils.data.dataset.Subset"


class _Probe:
    """Stand-in of an object while a batch is made; whatever it does not time it passes on.

    Args:
        target: the object.
    """

    op = "sample"

    def __init__(self, target: Any) -> None:
        self.target, self.step = target, -1
        self.add: SpanAdder

    def __getattr__(self, name: str) -> Any:
        if name == _FOR_BATCHES:  # a probe that has it has it itself
            raise AttributeError(name)
        return getattr(self.target, name)


class _MapProbe(_Probe):
    """A map-style data set."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        method = None if _is_read_item_by_item(target) else getattr(target, _FOR_BATCHES, None)
        if method:
            setattr(self, _FOR_BATCHES, functools.partial(self._read_items, method))

    def __getitem__(self, key: Any) -> Any:
        start_ns = clock()
        try:
            item = self.target[key]
        except BaseException as error:
            hide(error)
            raise
        self.add(start_ns, clock(), self.step, key if type(key) is int else index_of(key))
        return item

    def _read_items(self, method: Callable[[Any], Any], keys: Any) -> Any:
        start_ns = clock()
        try:
            items = method(keys)
        except BaseException as error:
            hide(error)
            raise
        self.add(start_ns, clock(), self.step, index_of(keys[0]) if len(keys) == 1 else -1)
        return items


class _IteratorProbe(_Probe):
    """An iterator of an iterable data set."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        start_ns = clock()
        try:
            item = next(self.target)
        except BaseException as error:
            hide(error)
            raise
        self.add(start_ns, clock(), self.step, -1)
        return item


class _CollateProbe(_Probe):
    """A function that makes a batch of samples."""

    op = "collate"

    def __call__(self, samples: Any) -> Any:
        start_ns = clock()
        try:
            batch = self.target(samples)
        except BaseException as error:
            hide(error)
            raise
        self.add(start_ns, clock(), self.step, -1)
        return batch


def patch_fetchers(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.utils.data._utils.fetch``."""
    of_maps, of_iterables = fetcher_classes(module)
    for kind, name, probe in ((of_maps, "dataset", _MapProbe), (of_iterables, "dataset_iter", _IteratorProbe)):
        kind.fetch = _fetch(kind.fetch, recorder, name, probe)


class _Probes:
    """The probes of a fetcher, and how they record.

    Args:
        recorder: the recorder.
        reader: probe of the data set or its iterator.
        collate: probe of the collate function.
        file: name of the data set in spans.
    """

    def __init__(self, recorder: TorchRecorder, reader: _Probe, collate: _Probe, file: str) -> None:
        self.recorder, self.reader, self.collate, self.file = recorder, reader, collate, file
        self.thread = (-1, -1)
        self.add: SpanAdder
        self.add_run_delay: SpanAdder
        self.run_queue: RunQueue
        self.delay_ns = UNKNOWN

    def use(self, step: int) -> None:
        """Prepares for a batch, in the thread that makes it."""
        thread = (self.recorder.pid, threading.get_ident())
        if self.thread != thread:
            self.thread = thread
            self.add = self.recorder.adder("batch", self.file)
            self.add_run_delay = self.recorder.adder("run_delay", self.file)
            self.run_queue = RunQueue()
            for probe in (self.reader, self.collate):
                probe.add = self.recorder.adder(probe.op, self.file)
        self.reader.step = self.collate.step = step
        self.delay_ns = self.run_queue.delay_ns()

    def end(self, start_ns: int) -> None:
        """Records the batch that ends now, and how long its thread waited for a core meanwhile."""
        self.add(start_ns, clock(), self.reader.step, -1)
        if self.delay_ns != UNKNOWN:
            self.add_run_delay(start_ns, start_ns + self.run_queue.delay_since(self.delay_ns), self.reader.step, -1)


def _fetch(
    original: Callable[[Any, Any], Any], recorder: TorchRecorder, attribute: str, kind: type[_Probe]
) -> Callable[[Any, Any], Any]:
    """``fetch`` of a fetcher; meanwhile probes stand for its data set and its collate function."""

    def prepare(fetcher: Any) -> _Probes:
        values = vars(fetcher)
        probes: _Probes | None = values.get(_PROBES)
        if probes is None or probes.reader.target is not values[attribute]:
            file = f"dataset {recorder.dataset_number(fetcher.dataset)}"
            probes = _Probes(recorder, kind(values[attribute]), _CollateProbe(fetcher.collate_fn), file)
            values[_PROBES] = probes
        probes.use(values.get(STEP, -1) if recorder.worker is None else recorder.worker.step)
        return probes

    prepared, ended = guarded(recorder, prepare), guarded(recorder, _Probes.end)

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probes = prepared(self)
        if probes is None:
            return original(self, possibly_batched_index)
        values, reader, collate = vars(self), probes.reader, probes.collate
        values[attribute], values["collate_fn"] = reader, collate
        start_ns = clock()
        try:
            data = original(self, possibly_batched_index)
        except BaseException as error:
            hide(error)
            raise
        finally:
            values[attribute], values["collate_fn"] = reader.target, collate.target
        ended(probes, start_ns)
        return data

    return fetch


def _is_read_item_by_item(dataset: Any) -> bool:
    """Whether this is torch's ``Subset`` of a data set without a method for whole batches.

    Its own method then reads item by item, unseen.
    """
    while f"{type(dataset).__module__}.{type(dataset).__qualname__}" == _SUBSET:
        dataset = dataset.dataset
        if f"{type(dataset).__module__}.{type(dataset).__qualname__}" != _SUBSET:
            return not callable(getattr(dataset, "__getitems__", None))
    return False
