"""Open files of arrays that lie in many files; shared by all threads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from dlio_torch.data.engines.decoupled.file_limit import opening_for_batch
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.layout_parts import PartedLayout


class OpenPart:
    """Open file of an array that lies in many; its descriptor is closed when nothing refers to the object.

    Args:
        layout: of the file.
        first: sample with which it begins.

    Attributes:
        layout: as given.
        first: as given.
        descriptor: of the file.
    """

    def __init__(self, layout: ArrayLayout, first: int) -> None:
        self.layout = layout
        self.first = first
        with os_errors(layout.path):
            self.descriptor = os.open(layout.path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class OpenParts:
    """Thread-safe cache of the most recently used files of arrays that lie in many.

    Args:
        limit: files that stay open.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[PartedLayout, int], OpenPart] = OrderedDict()

    def get(self, array: PartedLayout, number: int) -> OpenPart:
        """Returns file ``number`` of an array, which stays open as long as the caller refers to it.

        Raises:
            DataError: it is missing or damaged.
        """
        key = array, number
        with self._lock:
            opened = self._open.get(key)
            if opened is not None:
                self._open.move_to_end(key)
                return opened
        with opening_for_batch(self._limit):
            opened = OpenPart(*array.part(number))
        with self._lock:
            self._open[key] = opened
            while len(self._open) > self._limit:
                self._open.popitem(last=False)
        return opened

    def close(self) -> None:
        """Drop all files from the cache."""
        with self._lock:
            self._open.clear()
