"""Running chain of torchdata's nodes: its batches, and the end of its threads and workers.

torchdata 0.11 waits without limit for a worker that was killed or a read that hangs, so a thread of ours
watches the chain of nodes and ends it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

import torchdata.nodes as tn

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.workers.descriptor_limits import is_too_many
from dlio_torch.data.workers.exits import WorkerLimits, exit_of
from dlio_torch.data.workers.placement import UNPLACED, Placement, place_process
from dlio_torch.data.workers.worker_errors import no_batch
from dlio_torch.data.workers.worker_process import remove_segments
from dlio_torch.environment import private_names
from dlio_torch.errors import DlioError, RunFailed

_WATCH_S = 0.2  # between two looks at the workers
_ENDING_S = 1.0  # that threads and processes have to end by themselves


class RunningNodes(Iterator[Fetched]):
    """Running epoch of a chain of nodes, with the thread that monitors it."""

    def __init__(self, node: Any, config: LoaderConfig, limits: WorkerLimits, placement: Placement = UNPLACED) -> None:
        self._trouble: DlioError | None = None
        self._early: BaseException | None = None  # ended a thread before all of them were started
        with self._threads_noted():
            self._items = iter(tn.Loader(node, restart_on_stop_iteration=False))
        self._parts = list(private_names.running_nodes(node))
        runners = [runner for part in self._parts for runner in private_names.node_workers(part)]
        self._workers: list[BaseProcess] = [runner for runner in runners if config.num_workers]
        self._threads = [thread for part in self._parts for thread in private_names.node_threads(part)]
        self.readers: list[threading.Thread] = [runner for runner in runners if not config.num_workers]
        self._threads += self.readers
        self._place(placement)
        self._timeout_s = config.timeout_s
        self._limits = limits
        self._waiting_since: float | None = None  # when the trainer began to wait
        self._over = threading.Event()
        for thread in self._threads:
            # A thread that takes a batch from a worker that dies prints a traceback, and that is all it does.
            private_names.on_error_of_thread(thread, self._note)
        self._watch: threading.Thread | None = None
        if self._threads:  # else the trainer's thread reads
            self._watch = threading.Thread(target=self._watch_nodes, name="watch of nodes", daemon=True)
            self._watch.start()

    def _place(self, placement: Placement) -> None:
        # torchdata tells a worker its number only after the worker has begun, so the trainer places them.
        for number, worker in enumerate(self._workers):
            if worker.pid is not None:
                place_process(worker.pid, placement.of_reader(number))
        placement.place_threads(self.readers)

    def __next__(self) -> Fetched:
        self._waiting_since = time.monotonic()
        try:
            item: Fetched = next(self._items)
        except Exception:  # what a part says that was ended, or whose worker died while it sent a batch
            trouble = self._trouble or self._find_trouble()
            if trouble is not None:
                raise trouble from None
            raise
        finally:
            self._waiting_since = None
        return item

    @property
    def workers(self) -> list[BaseProcess]:
        """The worker processes."""
        return self._workers

    def close(self) -> None:
        """End threads and processes; hanging processes are killed, hanging threads end after their read."""
        self._over.set()
        if self._watch is not None:
            self._watch.join()
        self._stop()
        # Threads first: one may be taking a batch from a worker.
        _join(self._threads)
        for part in self._parts:
            if self._workers:
                private_names.ask_node_workers_to_stop(part)
        _join(self._workers)
        for worker in self._workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
        for part in self._parts:
            private_names.end_node(part)
            for queue in private_names.node_queues(part) if self._workers else ():
                private_names.close_queue(queue)
        remove_segments(self._workers)
        for worker in self._workers:
            worker.close()
        had_workers, self._workers, self._parts, self._items = bool(self._workers), [], [], iter(())
        if had_workers:
            # torchdata's nodes refer to each other in circles, and to batches in shared memory: until somebody looks
            # for circles, some epochs later, each epoch would leave its descriptors open.
            gc.collect()

    def _watch_nodes(self) -> None:
        if self._early is not None:
            self._note_error(self._early)
        while not self._over.wait(_WATCH_S):
            self._trouble = self._trouble or self._find_trouble()
            if self._trouble is not None:
                self._stop()
                return

    @contextlib.contextmanager
    def _threads_noted(self) -> Iterator[None]:
        """Record errors that end torchdata's threads during the body, instead of printing tracebacks."""
        others = threading.excepthook

        def note(ended: threading.ExceptHookArgs) -> None:
            modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(ended.exc_traceback))
            if any(name.startswith("torchdata.") for name in modules):
                self._early = ended.exc_value
            else:
                others(ended)

        threading.excepthook = note
        try:
            yield
        finally:
            threading.excepthook = others

    def _find_trouble(self) -> DlioError | None:
        died = exit_of(self._workers, self._limits)
        if died is not None:
            return died
        waiting_since = self._waiting_since
        if self._timeout_s and waiting_since is not None and time.monotonic() - waiting_since > self._timeout_s:
            return no_batch("loader workers" if self._workers else "reader threads", self._timeout_s)
        return None

    def _note(self, _: threading.Thread) -> None:
        """Record an exception; called in the thread that it ends."""
        error = sys.exc_info()[1]
        assert error is not None
        self._note_error(error)

    def _note_error(self, error: BaseException) -> None:
        """End the epoch because of an error, which may be caused by a dead worker."""
        end = time.monotonic() + _ENDING_S
        while not self._over.is_set() and self._trouble is None:
            trouble = self._find_trouble()
            if trouble is None and is_too_many(error):
                trouble = self._limits.files.error()
            if trouble is None and time.monotonic() > end:
                trouble = RunFailed(f"the loader failed: {type(error).__name__}: {error}")
            self._trouble = self._trouble or trouble
            time.sleep(_WATCH_S / 10)
        self._stop()

    def _stop(self) -> None:
        """Ask all threads and workers to end; waiting consumers get the end of the data."""
        for part in self._parts:
            private_names.ask_node_to_stop(part)


def _join(runners: Sequence[threading.Thread] | Sequence[BaseProcess]) -> None:
    end = time.monotonic() + _ENDING_S
    for runner in runners:
        # The sort thread is not started where batches may come in any order.
        if not isinstance(runner, threading.Thread) or runner.is_alive():
            runner.join(max(0.0, end - time.monotonic()))
