"""The recorder of the hook: spans, facts and numbers of one process, and what ends them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.iotrace.recorder.process_identity import call_after_fork, role_of_this_process
from dlio_torch.iotrace.recorder.span_adder import SpanAdder, span_adder
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.iotrace.recorder.torch_hook import descriptions
from dlio_torch.iotrace.recorder.torch_hook.activity import Activity
from dlio_torch.iotrace.recorder.torch_hook.facts_file import FactsFile
from dlio_torch.iotrace.recorder.torch_hook.iterations import Iteration
from dlio_torch.iotrace.recorder.torch_hook.numbers import Numbers

if TYPE_CHECKING:
    from dlio_torch.iotrace.recorder.torch_hook.worker_loops import WorkerTask

ITERATION = "_dlio_torch_iteration"
"""Attribute of an iterator: its iteration."""

clock = time.perf_counter_ns


class TorchRecorder:
    """Recorder of the patched functions; its methods for facts and notes raise no Exception.

    Args:
        events: the events folder.
        rank: rank of this process.
        limit_bytes: size that its spans, and its facts, may reach.

    Attributes:
        add: records a span (:meth:`dlio_torch.iotrace.recorder.spans.Recorder.add`).
        activity: the main thread's work and waiting.
        pid: this process.
        worker: the task of this process, if it is a loader worker.
    """

    def __init__(self, events: Path, rank: int, limit_bytes: int) -> None:
        self._spans = Recorder(events, rank, limit_bytes=limit_bytes)
        self._facts = FactsFile(events, rank, limit_bytes)
        self.add = self._spans.add
        self.activity = Activity(self.add)
        self._loaders, self._datasets = Numbers(), Numbers()
        self._lock = threading.RLock()
        self._enabled, self._is_described = True, False
        self.worker: WorkerTask | None
        self._epochs: dict[int, int] = {}
        self._forget()
        call_after_fork(self._forget)

    def adder(self, op: str, file: str) -> SpanAdder:
        """A fast function that adds spans; see :func:`dlio_torch.iotrace.recorder.span_adder.span_adder`."""
        return span_adder(self._spans, op, file)

    def dataset_number(self, dataset: Any) -> int:
        """Number of a data set; in a worker that got a copy of it, the number of the original."""
        number = self.known_dataset(dataset)
        return self._datasets.number(descriptions.unwrapped(dataset)) if number is None else number

    def known_dataset(self, dataset: Any) -> int | None:
        """Number of a data set; None if no loader uses it."""
        number = self._datasets.known(descriptions.unwrapped(dataset))
        return self.worker.dataset if number is None and self.worker is not None else number

    def describe(self, loader: Any, facts: Any) -> tuple[int, int]:
        """Numbers of a loader and its data set; their first use in this process writes their descriptions.

        Args:
            loader: the loader.
            facts: the module that describes it, with functions ``dataset_of``, ``dataset`` and ``loader``.
        """
        dataset = facts.dataset_of(loader)
        number, dataset_number = self._loaders.number(loader), self._datasets.number(dataset)
        if self._is_new("dataset", dataset_number):
            self.fact(facts.dataset(dataset, dataset_number, loader))
        if self._is_new("loader", number):
            self.fact(facts.loader(loader, number, dataset_number))
        return number, dataset_number

    def _is_new(self, kind: str, number: int) -> bool:
        is_new = (kind, number) not in self._described
        self._described.add((kind, number))
        return is_new

    def fact(self, fact: dict[str, Any]) -> None:
        """Writes a fact."""
        self.line(lambda: descriptions.json_text(fact))

    def line(self, text: Callable[[], str]) -> None:
        """Writes a line of JSON."""
        if not self._enabled:
            return
        try:
            self._describe_process()
            self._facts.write_line(text())
        except Exception as error:
            self.fail(error)

    def begin_worker(self, task: WorkerTask) -> None:
        """Notes that this process is a loader worker."""
        self.worker = task
        self.activity.stop()
        self._describe_process()

    def _describe_process(self) -> None:
        """Writes the description of this process, once."""
        with self._lock:
            if self._is_described:
                return
            self._is_described = True
            self._facts.write_line(descriptions.json_text(self._process()))

    def announce(self) -> None:
        """Writes a first description of a process that is no child of another: it may never use a loader."""
        if multiprocessing.parent_process() is None:
            try:
                self._facts.write_line(descriptions.json_text(self._process()))
            except Exception as error:
                self.fail(error)

    def note(self, text: str) -> None:
        """Writes a note."""
        self.fact({"kind": "note", "text": text})

    def fail(self, error: Exception) -> None:
        """Ends the recording of this process after an error of the hook, with a note."""
        if not self._enabled:
            return
        self._enabled = self._spans.enabled = False
        text = f"what process {os.getpid()} asked torch for is recorded in part: {type(error).__name__}: {error}"
        with contextlib.suppress(Exception):
            self._facts.write_line(descriptions.json_text({"kind": "note", "text": text}))

    def begin_iteration(self, loader: Any, facts: Any, iterator: Any, *, has_keys: bool) -> Iteration:
        """Begins an iteration over a loader, and an activity.

        Args:
            loader: the loader.
            facts: the module that describes it, see :meth:`describe`.
            iterator: its iterator, which is used for another iteration or for the first time.
            has_keys: whether its sampler gives keys.
        """
        start_ns = self.activity.begin()
        before = vars(iterator).get(ITERATION)
        if before is not None:
            before.end(exhausted=False)
        self.end_dead_iterations()
        number, dataset = self.describe(loader, facts)
        epoch = self._epochs.get(number, 0)
        self._epochs[number] = epoch + 1
        iteration = Iteration(self, number, epoch, start_ns, dataset, has_keys=has_keys)
        iteration.follow(iterator)
        setattr(iterator, ITERATION, iteration)
        self.iterations.append(iteration)
        return iteration

    def end_dead_iterations(self, *, all_of_them: bool = False) -> None:
        """Ends the iterations whose iterators are gone."""
        for iteration in list(self.iterations):
            if all_of_them or iteration.has_ended or not iteration.is_alive():
                iteration.end(exhausted=False)
                self.iterations.remove(iteration)

    def close(self) -> None:
        """Ends all iterations, at the end of the process."""
        self.end_dead_iterations(all_of_them=True)

    def _process(self) -> dict[str, Any]:
        worker = self.worker
        return {
            "kind": "process",
            "pid": os.getpid(),
            "rank": self._spans.rank,
            "parent_pid": _parent_pid(),
            "role": role_of_this_process(self._spans.role) if worker is None else f"loader worker {worker.number}",
            "python": ".".join(map(str, sys.version_info[:3])),
            **descriptions.versions(sys.modules),
            **descriptions.ranks(os.environ, sys.modules),
            "loader": None if worker is None else worker.loader,
            "worker": None if worker is None else worker.number,
        }

    def _forget(self) -> None:
        """A forked child begins with files of its own, in which nothing is described yet."""
        self._described: set[tuple[str, int]] = set()
        self._is_described = False
        self.pid = os.getpid()
        self.worker = None
        self.iterations: list[Iteration] = []
        self.activity.forget()


def _parent_pid() -> int:
    parent = multiprocessing.parent_process()
    pid = None if parent is None else parent.pid
    return os.getppid() if pid is None else pid
