"""The engine ``nodes``: a rank's batches through torchdata.nodes.

torchdata 0.11 waits for ever for a worker that was killed or a read that hangs, so a thread of ours
watches the chain of nodes and ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import torchdata.nodes as tn

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.datasets import CatchingDataset, Failure
from dlio_torch.data.pipes import EpochBatches
from dlio_torch.data.sampler import BatchSampler
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.formats.batch import Batch

_WATCH_S = 0.2  # between two looks at the workers
_ENDING_S = 1.0  # that a process has to end by itself


class NodesEngine:
    """Starts epochs; see ``loader.Engine``.

    torchdata starts its threads and processes anew for each epoch, so the nodes are built anew as well: what
    is left of an epoch that was abandoned half way then takes nothing from the next.
    """

    def __init__(self, config: LoaderConfig, dataset: CatchingDataset, sampler: BatchSampler) -> None:
        self._config = config
        self._dataset = dataset
        self._batches = EpochBatches(sampler)
        self._running: _Running | None = None

    def start(self, epoch: int, step: int) -> Iterator[Batch | Failure]:
        """Batches of ``epoch`` from ``step`` on."""
        self.close()
        self._batches.begin(epoch, step)
        self._running = _Running(self._chain(), self._config.timeout_s)
        return self._running

    def close(self) -> None:
        """End threads and processes."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _chain(self) -> Any:
        config, read = self._config, self._dataset.__getitems__
        node: Any = _IndexNode(self._batches)
        if config.num_workers:
            # A DataLoader has prefetch_factor batches under way for each worker; here the mapper holds one
            # for each worker and the rest waits in the prefetcher.
            node = tn.ParallelMapper(
                node,
                read,
                num_workers=config.num_workers,
                in_order=config.in_order,
                method="process",
                multiprocessing_context=config.multiprocessing_context,
                max_concurrent=config.num_workers,
            )
            ahead = config.num_workers * ((config.prefetch_factor or 2) - 1)
        elif config.read_threads:
            concurrent = min(config.read_threads, config.prefetch_batches)
            node = tn.ParallelMapper(
                node, read, num_workers=config.read_threads, in_order=config.in_order, max_concurrent=concurrent
            )
            ahead = config.prefetch_batches - concurrent
        else:
            node, ahead = tn.Mapper(node, read), 0
        if ahead:
            node = tn.Prefetcher(node, ahead)
        return tn.PinMemory(node) if config.pin_memory else node


class _IndexNode(tn.BaseNode[list[int]]):  # type: ignore[misc]  # torchdata has no types
    """The rank's batches of sample numbers as a node."""

    def __init__(self, batches: EpochBatches) -> None:
        super().__init__()
        self._iterator = iter(batches)

    def next(self) -> list[int]:
        return next(self._iterator)

    def get_state(self) -> dict[str, Any]:
        return {}  # the position is BatchLoader's


class _Running(Iterator[Batch | Failure]):
    """One epoch of a chain of nodes, and the thread that watches it."""

    def __init__(self, node: Any, timeout_s: float) -> None:
        self._items = iter(tn.Loader(node, restart_on_stop_iteration=False))
        self._parts = list(_parts(node))
        self._workers = [worker for part in self._parts for worker in getattr(part, "_workers", ()) if _is_process(worker)]
        self._timeout = timeout_s
        self._asked: float | None = None  # when the trainer began to wait
        self._trouble: DlioError | None = None
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._run, name="nodes watch", daemon=True)
        if len(self._parts) > 1:  # a single part works in the trainer's own thread
            self._watch.start()

    def __next__(self) -> Batch | Failure:
        self._asked = time.monotonic()
        try:
            item: Batch | Failure = next(self._items)
        except StopIteration:
            if self._trouble is not None:
                raise self._trouble from None
            raise
        finally:
            self._asked = None
        return item

    def close(self) -> None:
        """End threads and processes; those that hang are killed, or left to end after their read."""
        self._over.set()
        if self._watch.is_alive():
            self._watch.join()
        self._stop()
