"""Execution of read plans whose extents go straight to the memory of a GPU."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dlio_torch.data.engines.decoupled.device_files import DeviceFile, OpenDeviceFile
from dlio_torch.data.engines.decoupled.epoch import Part
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.data.engines.decoupled.group_reader import cuts, ended_early
from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.extents import Mover

_HOST = "set loader.read_to=host"


class DeviceReading:
    """Thread-safe division of read plans into parts, for memory of a GPU.

    Args:
        open_file: opens a file for reads to the GPU.
        mover: gives no hints, since reads to a GPU bypass the page cache.
        request: most bytes of a read request.
        threads: parts into which a large plan falls.
        recorder: takes spans ``read``.
        limit: files that stay open.

    Attributes:
        mover: as given.
    """

    def __init__(
        self, open_file: OpenDeviceFile, mover: Mover, request: int, threads: int, recorder: Recorder, limit: int
    ) -> None:
        self.mover = mover
        self._open_file = open_file
        self._request = request
        self._threads = threads
        self._recorder = recorder
        self._limit = limit
        self._lock = threading.Lock()
        self._files: OrderedDict[Path, DeviceFile] = OrderedDict()

    def parts(self, plan: ReadPlan, memory: torch.Tensor) -> list[Part]:
        """Divides the reads that fill ``memory`` into parts, which any thread may run and which raise DataError.

        Raises:
            DataError: some bytes cannot go to their destination as they are.
        """
        problem = unplain(plan)
        if problem is not None:
            raise DataError(f"{_name(plan)}: {problem}, so they cannot be read to a GPU", hint=_HOST)
        ranges = cuts(plan.extents.lengths, self._threads)
        return [partial(self._read, plan, low, high, memory) for low, high in ranges]

    def close(self) -> None:
        """Close all files that no thread reads."""
        with self._lock:
            self._files.clear()

    def _read(self, plan: ReadPlan, low: int, high: int, memory: torch.Tensor) -> None:
        began, size = time.perf_counter_ns(), 0
        for descriptor, offset, length, to in requests(plan, low, high, self._request):
            self._fill(plan.paths[descriptor], descriptor, offset, memory[to : to + length])
            size += length
        path = str(next(iter(plan.paths.values()))) if len(plan.paths) == 1 else None
        self._recorder.add("read", began, time.perf_counter_ns(), file=path, bytes=size)

    def _fill(self, path: Path, descriptor: int, offset: int, memory: torch.Tensor) -> None:
        length = len(memory)
        # cuFile may leave memory as it was behind the end of a file.
        there = min(length, os.fstat(descriptor).st_size - offset)
        if there < length:
            raise ended_early(path, offset, max(0, there), length)
        try:
            got = self._file(path).read(memory, offset)
        except RuntimeError as error:
            raise DataError(f"{path} cannot be read to the GPU: {str(error).splitlines()[0]}", hint=_HOST) from error
        if got < length:
            raise ended_early(path, offset, got, length)

    def _file(self, path: Path) -> DeviceFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = self._opened(path)
            self._files.move_to_end(path)
            while len(self._files) > self._limit:
                self._files.popitem(last=False)
        return file

    def _opened(self, path: Path) -> DeviceFile:
        with os_errors(path):
            try:
                return self._open_file(path)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise DataError(
                    f"{path}: the file system does not permit direct reads (O_DIRECT), which cuFile makes", hint=_HOST
                ) from error


def unplain(plan: ReadPlan) -> str | None:
    """Why bytes of a plan cannot go to their destination as they are stored; ``None``: all of them can."""
    if plan.chunks:
        return "samples lie in chunks, which are read whole and decoded by the CPU"
    if plan.records:
        return "samples are records that the CPU takes apart"
    if plan.copies:
        return "samples are read into the host's memory with their file"
    if plan.extents.turned is not None:
        return "elements are stored in the other byte order, which the CPU turns"
    return None


def requests(plan: ReadPlan, low: int, high: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Requests for extents ``low`` to ``high``: descriptor, first byte, bytes, and first byte in the block.

    Neighbours in file and block are joined; no request has more than ``most`` bytes.
    """
    descriptors, extents = plan.descriptors[low:high], plan.extents.taken(slice(low, high))
    ends, to_ends = extents.offsets + extents.lengths, extents.to + extents.lengths
    apart = (
        (descriptors[1:] != descriptors[:-1]) | (extents.offsets[1:] != ends[:-1]) | (extents.to[1:] != to_ends[:-1])
    )
    firsts = np.concatenate([[0], np.flatnonzero(apart) + 1]) if len(descriptors) else np.zeros(0, np.int64)
    lasts = np.append(firsts[1:], len(descriptors)) - 1
    rows = zip(descriptors[firsts], extents.offsets[firsts], ends[lasts], extents.to[firsts], strict=True)
    for descriptor, begin, end, to in (tuple(map(int, row)) for row in rows):
        for offset in range(begin, end, most):
            yield descriptor, offset, min(most, end - offset), to + offset - begin


def _name(plan: ReadPlan) -> str:
    return str(next(iter(plan.paths.values()), "the data set"))
