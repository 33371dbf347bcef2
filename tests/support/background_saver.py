"""A layout of tests that writes the files of layout ``torch_save`` in a thread, after the training goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dlio_torch.checkpoint.base import Saver, SaverSetup
from dlio_torch.checkpoint.layouts.plain_files.layout import TorchSaveLayout
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes

PATH = f"{__name__}:BackgroundLayout"
"""Entry for the registry of layouts."""


class BackgroundLayout(TorchSaveLayout):
    def open(self, setup: SaverSetup) -> Saver:
        return BackgroundSaver(super().open(setup), setup.directory)


class BackgroundSaver:
    """One save at a time: a save that begins while another one runs waits for it, as DCP's do.

    Attributes:
        gate: called by the thread, with folder and step, before it writes; a test blocks here or raises.
    """

    gate: Callable[[Path, int], object] = staticmethod(lambda folder, step: None)

    def __init__(self, inner: Saver, directory: Path) -> None:
        self._inner, self._directory = inner, directory
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stalls: dict[int, tuple[int, float]] = {}

    def begin(self) -> int:
        return self._inner.begin()

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        start = time.perf_counter_ns()
        self._join()
        arguments = (step, list(kept), list(surplus), fsync)
        self._thread = threading.Thread(target=self._write, args=arguments, name="background save", daemon=True)
        self._thread.start()
        self._stalls[step] = (start, (time.perf_counter_ns() - start) / 1e9)

    def finished(self) -> list[SaveTimes]:
        if self._thread is not None and self._thread.is_alive():
            return []
        self._join()
        return [self._timed(times) for times in self._inner.finished()]

    def wait(self) -> None:
        self._join()

    def discard(self, step: int) -> None:
        self._inner.discard(step)

    def drop_cached_pages(self, step: int) -> None:
        self._inner.drop_cached_pages(step)

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        return self._inner.restore(directory, step)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._inner.close()

    def _write(self, step: int, kept: list[int], surplus: list[int], fsync: bool) -> None:
        try:
            type(self).gate(self._directory, step)
            self._inner.save(step, kept, surplus, fsync=fsync)
        except BaseException as error:
            self._error = error

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _timed(self, times: SaveTimes) -> SaveTimes:
        """Times of the inner save as seen from the begin of the whole one."""
        start, stall_s = self._stalls.pop(times.step)
        durable_s = (times.start_ns - start) / 1e9 + times.durable_s
        return replace(times, start_ns=start, stall_s=stall_s, durable_s=durable_s)
