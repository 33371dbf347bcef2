"""One iteration over a loader: its batches, indices and shapes."""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlio_torch.iotrace.recorder.torch_hook.arrays import ArraySignature
from dlio_torch.iotrace.recorder.torch_hook.descriptions import json_text

if TYPE_CHECKING:
    from dlio_torch.iotrace.recorder.torch_hook.torch_recorder import TorchRecorder

clock = time.perf_counter_ns


class Iteration:
    """One iteration over a loader; its methods must be called under :func:`.guards.guarded`.

    Args:
        recorder: what records.
        loader: number of the loader.
        epoch: number of the iteration over this loader.
        start_ns: its begin.
        dataset_file: name of the data set in spans.
        has_keys: whether the sampler gives keys (of a map-style data set).
    """

    def __init__(
        self, recorder: TorchRecorder, loader: int, epoch: int, start_ns: int, dataset: int, *, has_keys: bool
    ) -> None:
        self.recorder = recorder
        self.loader, self.epoch, self.dataset = loader, epoch, dataset
        self.file = f"loader {loader}"
        self.batch = 0
        self.is_starting = True
        self._given = 0  # batches of keys
        self._has_keys = has_keys
        self.has_ended = False
        self._end_ns = start_ns
        self._arrays = ArraySignature()
        self._iterator: Callable[[], object] = lambda: None
        recorder.fact({"kind": "epoch", "loader": loader, "epoch": epoch, "start_ns": start_ns})

    def follow(self, iterator: object) -> None:
        """Notes the iterator, by which it is known whether the program may take more batches."""
        self._iterator = weakref.ref(iterator)

    def is_alive(self) -> bool:
        """Whether the program may take more batches."""
        return self.is_starting or self._iterator() is not None

    def start(self) -> None:
        """Notes that the iterator is ready."""
        self.is_starting = False
        self.recorder.activity.end(clock(), is_start=True)

    def after_batch(self, data: Any, start_ns: int) -> None:
        """Records a batch that the program gets, and the end of the activity."""
        end_ns = clock()
        self.fetched(data, start_ns, end_ns)
        self.recorder.activity.end(end_ns)

    def after_last(self, *, is_last: bool) -> None:
        """Records the end of the activity that brought no batch.

        Args:
            is_last: whether the loader has no more batches; else it failed.
        """
        end_ns = clock()
        if is_last:
            self.recorder.activity.fetched(-1, self.file)
            self.end(exhausted=True, end_ns=end_ns)
        self.recorder.activity.end(end_ns)

    def fetched(self, data: Any, start_ns: int, end_ns: int) -> None:
        """Records a batch that the program gets."""
        batch, self.batch, self._end_ns = self.batch, self.batch + 1, end_ns
        if self.is_starting:  # skipped by a loader that resumes
            return
        self.recorder.add("fetch", start_ns, end_ns, step=batch, file=self.file, offset=self.epoch)
        self.recorder.activity.fetched(batch, self.file)
        arrays = self._arrays.changed(data)
        if arrays is not None:
            self.recorder.fact({"kind": "arrays", "loader": self.loader, "batch": batch, "arrays": arrays})

    def gave(self, keys: Any) -> None:
        """Records what the sampler gave for one batch."""
        batch, self._given = self._given, self._given + 1
        if not self._has_keys:
            return
        start = f'{{"kind":"indices","loader":{self.loader},"epoch":{self.epoch},"batch":{batch},"indices":'
        listed = keys if type(keys) is list else _listed(keys)
        if set(map(type, listed)) <= {int}:
            self.recorder.line(lambda: f"{start}{listed}}}")
        else:
            self.recorder.line(lambda: f"{start}{_json_list(listed)}}}")

    def gave_one(self, key: Any, batch_size: int) -> None:
        """Records one key of a sampler that does not give whole batches; see :meth:`gave`."""
        batch, position = divmod(self._given, batch_size)
        self._given += 1
        self.recorder.fact(
            {
                "kind": "indices",
                "loader": self.loader,
                "epoch": self.epoch,
                "batch": batch,
                "position": position,
                "indices": [key],
            }
        )

    def end(self, *, exhausted: bool, end_ns: int | None = None) -> None:
        """Records the end of the iteration, once.

        Args:
            exhausted: whether the loader had no more batches.
            end_ns: when; None: at the end of the last batch.
        """
        if self.has_ended:
            return
        self.has_ended = True
        self.recorder.fact(
            {
                "kind": "epoch_end",
                "loader": self.loader,
                "epoch": self.epoch,
                "end_ns": self._end_ns if end_ns is None else end_ns,
                "batches": self.batch,
                "exhausted": exhausted,
            }
        )


def index_of(key: Any) -> int:
    """A key of a data set as a number; -1 if it is no integer."""
    try:
        return operator.index(key)
    except Exception:
        return -1


def _listed(keys: Any) -> list[Any]:
    if type(keys) in (tuple, range):
        return list(keys)
    if hasattr(keys, "tolist"):  # a tensor or an array
        listed = keys.tolist()
        return listed if type(listed) is list else [listed]
    return [keys]


def _json_list(keys: list[Any]) -> str:
    numbers = [(index_of(key), key) for key in keys]
    return json_text([repr(key) if number == -1 and key != -1 else number for number, key in numbers])  # type: ignore[arg-type]
