"""Map-style Dataset for all formats: takes sample numbers and returns batches.

``__getitems__`` reads a whole batch into one buffer, so the loader's collate function has nothing
to do.  Files stay open, as the applications keep them: in each thread that reads them, or once for all threads of a
process where the format says so.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.utils.data import Dataset

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.data.dataset.batch_memory import collated_in_worker
from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.provenance import BatchRecorder
from dlio_torch.data.dataset.verification import check_contents, check_count
from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.batch import Batch, BatchBuffer, batch_bytes
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.syserrors import unreadable

_Opened = OrderedDict[int, tuple[Reader, str]]  # file number -> the open file and its path


class SampleDataset(Dataset[Batch]):
    """Map-style dataset of the samples of one split.

    Args:
        fmt: reads the files.
        manifest: where each sample lies.
        recorder: takes spans ``read``, ``preprocess`` and ``collate``.
        unit: ``sample`` reads sample by sample, ``block`` reads runs of consecutive samples at once.
        preprocess: CPU time to spend on each sample.
        max_open_files: files that a thread keeps open; all threads together where they share them.
        verify: compare each sample with what was generated.
        inherited: forked workers go on with the files that :meth:`open_first` opened, which must be mapped.
        epoch: a number in memory that workers share, so that those that persist learn of a new epoch; for a format
            whose samples depend on it.  ``None``: epoch 0.
    """

    def __init__(
        self,
        fmt: Format,
        manifest: Manifest,
        recorder: Recorder,
        *,
        unit: str = "sample",
        preprocess: Preprocess | None = None,
        max_open_files: int = 64,
        verify: bool = False,
        inherited: bool = False,
        epoch: torch.Tensor | None = None,
    ) -> None:
        self._format = fmt
        self._manifest = manifest
        self._recorder = recorder
        self._by_run = unit == "block"
        self._preprocess = preprocess
        self._max_open = max_open_files
        self._verify = verify
        self._specs = fmt.specs()
        self._shared = fmt.shared_by_threads
        self._files = self._no_files()
        self._is_inherited = inherited
        self._first: dict[int, tuple[Reader, str]] = {}
        self._epoch = epoch

    def begin(self, epoch: int, step: int) -> None:
        """Set the epoch of the next batches, on which samples of some formats depend."""
        if self._epoch is not None:
            self._epoch[0] = epoch

    def __len__(self) -> int:
        return self._manifest.num_samples

    def __getitem__(self, index: int) -> Batch:
        """A batch of one sample."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The batch of the samples ``indices``, in this order.

        Raises:
            DataError: a file is damaged or missing, or (``verify``) holds other content.
        """
        add, clock = self._recorder.add, time.perf_counter_ns
        buffer = BatchBuffer(self._specs, indices)
        find = self._shared_reader if self._shared else partial(self._reader, opened=self._own_files())
        position, epoch = 0, 0 if self._epoch is None else int(self._epoch[0])
        for file, first, count in self._runs(indices):
            reader, path = find(file)
            began = clock()
            try:
                reader.begin_epoch(epoch)
                reader.read(first, count, buffer, position)
            except OSError as error:
                raise unreadable(path, error) from error
            add("read", began, clock(), file=path)
            position += count
        if self._preprocess is not None:
            began = clock()
            self._preprocess.burn(len(indices))
            add("preprocess", began, clock())
        began = clock()
        batch = collated_in_worker(buffer.finish())
        add("collate", began, clock(), bytes=batch_bytes(batch))
        if self._verify:
            self._check(batch, epoch)
        return batch

    def _runs(self, indices: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """File, first position and length of each piece to read."""
        if not self._by_run:
            for index in indices:
                file, row = self._manifest.locate(index)
                yield file, row, 1
            return
        pending: tuple[int, int, int] | None = None
        for index in indices:
            file, row = self._manifest.locate(index)
            if pending is not None and file == pending[0] and row == pending[1] + pending[2]:
                pending = (file, pending[1], pending[2] + 1)
                continue
            if pending is not None:
                yield pending
            pending = (file, row, 1)
        if pending is not None:
            yield pending

    def open_first(self) -> None:
        """Open as many files as stay open, if the reader threads share open files or workers inherit them.

        The thread that calls this is the one that opens them; the others read.

        Raises:
            DataError: a file is damaged or missing.
        """
        files = range(min(self._manifest.num_files, self._max_open))
        if self._shared:
            for file in files:
                self._shared_reader(file)
        elif self._is_inherited:
            opened = self._own_files()
            self._first = {file: self._reader(file, opened) for file in files}

    def close_first(self) -> None:
        """Close the files that workers inherited; the process that opened them calls this when no worker is left."""
        while self._first:
            self._first.popitem()[1][0].close()

    def _no_files(self) -> Any:
        """Empty cache of open files: one per thread, or one for all threads with a lock for lookups and opens."""
        if not self._shared:
            return threading.local()
        return SimpleNamespace(pid=os.getpid(), opened=OrderedDict(), lock=threading.Lock())

    # A forked worker must not use the files that its parent has open, except for mappings.

    def _own_files(self) -> _Opened:
        files = self._files
        if getattr(files, "pid", None) != os.getpid():
            files.pid, files.opened = os.getpid(), OrderedDict(self._first)
        opened: _Opened = files.opened
        return opened

    def _shared_reader(self, file: int) -> tuple[Reader, str]:
        files = self._files
        if files.pid != os.getpid():
            files = self._files = self._no_files()
        with files.lock:
            return self._reader(file, files.opened)

    def _reader(self, file: int, opened: _Opened) -> tuple[Reader, str]:
        """Returns the open file of a number and its path."""
        already_open = opened.get(file)
        if already_open is not None:
            opened.move_to_end(file)
            return already_open
        if len(opened) >= self._max_open:
            oldest, _ = opened.popitem(last=False)[1]
            if not self._shared:  # else another thread may read it, and the last one that lets go of it closes it
                oldest.close()
        path = self._manifest.path(file)
        began = time.perf_counter_ns()
        reader = self._format.open(path, self._recorder)
        self._recorder.add("open", began, time.perf_counter_ns(), file=str(path))
        if self._format.needs_files and reader.num_samples is not None:
            try:
                check_count(path, reader.num_samples, self._manifest.count(file))
            except DataError:
                reader.close()
                raise
        opened[file] = reader, str(path)
        return opened[file]

    def _check(self, batch: Batch, epoch: int = 0) -> None:
        check_contents(batch, self._format.of_epoch(epoch), self._manifest)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_files"]
        return state | {"_first": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._files = self._no_files()


class BatchSource(Protocol):
    """Map-style dataset whose ``__getitems__`` returns a whole batch."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The batch of the given samples."""


class CatchingDataset(Dataset[Fetched]):
    """Dataset that returns each batch as :class:`Fetched`, so that errors reach the trainer from worker processes.

    Args:
        inner: gives the batches.
        recorder: takes how each batch came to be (:mod:`dlio_torch.data.dataset.provenance`).
    """

    def __init__(self, inner: BatchSource, recorder: Recorder = NULL) -> None:
        self._inner = inner
        self._batch_recorder = BatchRecorder(recorder)

    def __len__(self) -> int:
        return len(self._inner)

    def begin(self, epoch: int, step: int) -> None:
        """Set the step of the next batch, for datasets that depend on it."""
        if hasattr(self._inner, "begin"):
            self._inner.begin(epoch, step)

    def close(self) -> None:
        """Close files that workers inherited; called when no worker is left."""
        if isinstance(self._inner, SampleDataset):
            self._inner.close_first()

    def __getitem__(self, index: int) -> Fetched:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Fetched:
        """The batch (with its number if batches are recorded), or the error in its place."""
        begun = self._batch_recorder.begin()
        try:
            return self._batch_recorder.end(begun, self._inner.__getitems__(indices))
        except DlioError as error:
            return failed(error)


def passed_through(batch: Any) -> Any:
    """Collate function that returns its argument, because batches arrive complete."""
    return batch
