"""Patches of the fetchers, which read the samples of a batch and collate them, in whichever process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dlio_torch.iotrace.recorder.torch_hook.guards import guarded
from dlio_torch.iotrace.recorder.torch_hook.iterations import index_of
from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder, clock

STEP = "_dlio_torch_step"
"""Attribute of a fetcher without workers: the number of the batch."""
_PROBES = "_dlio_torch_probes"  # attribute of a fetcher
_SUBSET = "torch.utils.data.dataset.Subset"


class _Probe:
    """Stand-in of an object while a batch is made; whatever it does not time it passes on.

    Args:
        target: the object.
        recorder: what records.
        file: name of the data set in spans.
    """

    def __init__(self, target: Any, recorder: TorchRecorder, file: str) -> None:
        self.target, self.file, self.step = target, file, -1
        self.add, self.fail = recorder.add, recorder.fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def record(self, op: str, start_ns: int, index: int = -1) -> None:
        """Records a span that ends now."""
        end_ns = clock()
        try:
            self.add(op, start_ns, end_ns, step=self.step, file=self.file, offset=index)
        except Exception as error:
            self.fail(error)


class _MapProbe(_Probe):
    """A map-style data set."""

    def __getitem__(self, key: Any) -> Any:
        start_ns = clock()
        item = self.target[key]
        self.record("sample", start_ns, key if type(key) is int else index_of(key))
        return item

    # The fetcher asks for it; a data set without the method must look so.
    @property
    def __getitems__(self) -> Any:
        """The data set's method for a whole batch, timed."""
        method = None if _is_read_item_by_item(self.target) else getattr(self.target, "__getitems__", None)
        if not method:
            raise AttributeError("__getitems__")
        return functools.partial(self._read_items, method)

    def _read_items(self, method: Callable[[Any], Any], keys: Any) -> Any:
        start_ns = clock()
        items = method(keys)
        self.record("sample", start_ns, index_of(keys[0]) if len(keys) == 1 else -1)
        return items


class _IteratorProbe(_Probe):
    """An iterator of an iterable data set."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        start_ns = clock()
        item = next(self.target)
        self.record("sample", start_ns)
        return item


class _CollateProbe(_Probe):
    """A function that makes a batch of samples."""

    def __call__(self, samples: Any) -> Any:
        start_ns = clock()
        batch = self.target(samples)
        self.record("collate", start_ns)
        return batch


def patch_fetchers(module: ModuleType, recorder: TorchRecorder) -> None:
    """Patches ``torch.utils.data._utils.fetch``."""
    for kind, name, probe in (
        (module._MapDatasetFetcher, "dataset", _MapProbe),
        (module._IterableDatasetFetcher, "dataset_iter", _IteratorProbe),
    ):
        kind.fetch = _fetch(kind.fetch, recorder, name, probe)


def _fetch(
    original: Callable[[Any, Any], Any], recorder: TorchRecorder, attribute: str, kind: type[_Probe]
) -> Callable[[Any, Any], Any]:
    """``fetch`` of a fetcher; meanwhile probes stand for its data set and its collate function."""

    def prepare(fetcher: Any) -> dict[str, _Probe]:
        worker = recorder.worker
        step = vars(fetcher).get(STEP, -1) if worker is None else worker.step
        probes = vars(fetcher).get(_PROBES)
        if probes is None or probes[attribute].target is not vars(fetcher)[attribute]:
            number = recorder.number_of_dataset(fetcher.dataset) if worker is None else worker.dataset
            file = f"dataset {number}"
            reader = kind(vars(fetcher)[attribute], recorder, file)
            probes = {attribute: reader, "collate_fn": _CollateProbe(fetcher.collate_fn, recorder, file)}
            setattr(fetcher, _PROBES, probes)
        for probe in probes.values():
            probe.step = step
        return probes  # type: ignore[no-any-return]

    prepared = guarded(recorder, prepare)

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        probes = prepared(self)
        if probes is None:
            return original(self, possibly_batched_index)
        values = vars(self)
        reader, collate = probes[attribute], probes["collate_fn"]
        values[attribute], values["collate_fn"] = reader, collate
        start_ns = clock()
        try:
            data = original(self, possibly_batched_index)
        finally:
            values[attribute], values["collate_fn"] = reader.target, collate.target
        reader.record("batch", start_ns)
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
