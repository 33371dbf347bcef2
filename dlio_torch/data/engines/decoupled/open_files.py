"""Open files of the decoupled engine, with layouts and descriptors; shared by all threads."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.verification import check_count
from dlio_torch.data.engines.decoupled.file_limit import opening_for_batch
from dlio_torch.data.engines.decoupled.open_parts import OpenParts
from dlio_torch.formats.core.direct_file import open_direct
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.layout_parts import PartedLayout
from dlio_torch.iotrace.recorder.spans import Recorder


class OpenFile:
    """Open file of the data set; its descriptors are closed when nothing refers to the object.

    Args:
        layout: where its samples lie.
        direct: open it for direct reads.

    Attributes:
        layout: where its samples lie.
        descriptors: of each file that they lie in.
    """

    def __init__(self, layout: FileLayout, *, direct: bool = False) -> None:
        self.layout = layout
        self.descriptors: dict[Path, int] = dict(layout.descriptors)
        arrays = [array for array in layout.arrays.values() if not isinstance(array, PartedLayout)]
        needed = {array.path for array in arrays if not array.in_memory}
        for path in needed - self.descriptors.keys():
            with os_errors(path):
                self.descriptors[path] = open_direct(path) if direct else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if direct:
                # Finding the layout has read the header, and the kernel some pages behind it.
                os.posix_fadvise(self.descriptors[path], 0, 0, os.POSIX_FADV_DONTNEED)

    def __del__(self) -> None:
        for descriptor in getattr(self, "descriptors", {}).values():
            os.close(descriptor)


class Files:
    """Cache of the most recently used files.

    Args:
        fmt: knows where samples lie.
        manifest: names the files.
        recorder: takes spans ``open``.
        limit: files that stay open.
        held: files that stay in memory, where they are read whole.

    Attributes:
        limit: as given.
        parts: files of arrays that lie in many, as many as ``limit``.
    """

    def __init__(
        self, fmt: Format, manifest: Manifest, recorder: Recorder, limit: int, held: int | None = None
    ) -> None:
        self._format = fmt
        self._manifest = manifest
        self._recorder = recorder
        self.limit = limit
        self.parts = OpenParts(limit)
        self._held_limit = limit if held is None else held
        self._held: OrderedDict[int, None] = OrderedDict()  # those of the open ones that are in memory
        self._lock = threading.Lock()
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._coming: dict[int, Future[OpenFile]] = {}  # files that a thread is opening

    def get(self, number: int) -> OpenFile:
        """Returns file ``number``, which stays open as long as the caller refers to it.

        Raises:
            DataError: it is missing, damaged, or holds another number of samples.
        """
        with self._lock:
            opened = self._open.get(number)
            if opened is not None:
                self._open.move_to_end(number)
                if number in self._held:
                    self._held.move_to_end(number)
                return opened
            coming = self._coming.get(number)
            mine = coming is None
            if coming is None:
                coming = self._coming[number] = Future()
        if not mine:
            return coming.result()
        try:
            opened = self._opened(number)
        except BaseException as error:
            with self._lock:
                del self._coming[number]
            coming.set_exception(error)
            raise
        with self._lock:
            del self._coming[number]
            if not opened.layout.once:
                self._keep(number, opened)
        coming.set_result(opened)
        return opened

    def _keep(self, number: int, opened: OpenFile) -> None:
        self._open[number] = opened
        if opened.layout.read_bytes:
            self._held[number] = None
        if len(self._held) > self._held_limit:
            del self._open[next(iter(self._held))]
            self._held.popitem(last=False)
        while len(self._open) > self.limit:
            oldest, _ = self._open.popitem(last=False)
            self._held.pop(oldest, None)

    def _opened(self, number: int) -> OpenFile:
        path = self._manifest.path(number)
        began = time.perf_counter_ns()
        with opening_for_batch(self.limit):
            opened = OpenFile(self._format.layout(path), direct=self._format.config.direct_io)
        self._recorder.add("open", began, time.perf_counter_ns(), file=str(path))
        if opened.layout.read_bytes:
            self._recorder.add("read", began, time.perf_counter_ns(), file=str(path), bytes=opened.layout.read_bytes)
        if opened.layout.num_samples is not None:
            check_count(path, opened.layout.num_samples, self._manifest.count(number))
        return opened

    def close(self) -> None:
        """Drop all files from the cache."""
        with self._lock:
            self._open.clear()
            self._held.clear()
        self.parts.close()
