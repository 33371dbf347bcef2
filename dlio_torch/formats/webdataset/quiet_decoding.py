"""Decoding without Pillow's remarks, which leaves the filters of the user's process as they were."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class _Decoding:
    """Threads of this process that decode now; the first changes the filters, the last restores them.

    The filters belong to the process: threads that changed and restored them each for itself would restore each
    other's.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0
    filters: warnings.catch_warnings[None] | None = None

    def begin(self) -> None:
        with self.lock:
            if not self.threads:
                self.filters = warnings.catch_warnings()
                self.filters.__enter__()
                # Pillow remarks on files that it reads all the same, such as palettes with transparency.
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self.threads += 1

    def end(self) -> None:
        with self.lock:
            self.threads -= 1
            if not self.threads and self.filters is not None:
                self.filters.__exit__(None, None, None)
                self.filters = None

    def after_fork(self) -> None:
        """Forgets the threads, of which a child has none but its own."""
        self.lock, self.threads = threading.Lock(), 0
        if self.filters is not None:
            self.filters.__exit__(None, None, None)
            self.filters = None


_DECODING = _Decoding()
os.register_at_fork(after_in_child=_DECODING.after_fork)


@contextmanager
def quiet() -> Iterator[None]:
    """Leaves out Pillow's warnings while any thread of the process is inside."""
    _DECODING.begin()
    try:
        yield
    finally:
        _DECODING.end()
