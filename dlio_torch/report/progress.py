"""Shows the progress of rank 0: a progress bar on a terminal, a line every few seconds elsewhere.

Drawing happens inside the trainer's loop, between two steps, at most once a second: a drawing thread
would take the interpreter lock (GIL) at unpredictable moments.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

_BAR_NS = 1_000_000_000
_LINE_NS = 5_000_000_000


def _nothing(done: int, total: int) -> None:
    """Progress callback that shows nothing."""


class Progress:
    """Shows progress on ``stream``.

    Args:
        stream: where to; a terminal gets a bar.
        enabled: show anything at all.
    """

    def __init__(self, stream: TextIO, *, enabled: bool) -> None:
        self._stream = stream
        self._enabled = enabled

    @contextlib.contextmanager
    def task(self, name: str, unit: str, detail: Callable[[], str] = str) -> Iterator[Callable[[int, int], None]]:
        """Starts a progress display; returns the function that updates it with the amounts done and in all.

        Args:
            name: of the task.
            unit: of the amounts.
            detail: gives further text for each drawing.
        """
        if not self._enabled:
            yield _nothing
        elif self._stream.isatty():
            with self._bar(name, unit, detail) as update:
                yield update
        else:
            yield self._lines(name, unit, detail)

    @contextlib.contextmanager
    def _bar(self, name: str, unit: str, detail: Callable[[], str]) -> Iterator[Callable[[int, int], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn(name), BarColumn(20), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
        with Bar(
            *columns,
            TextColumn("{task.description}"),
            console=Console(file=self._stream),
            auto_refresh=False,
            transient=True,
        ) as bar:
            task = bar.add_task("", total=None)
            last = 0

            def update(done: int, total: int) -> None:
                nonlocal last
                now = time.perf_counter_ns()
                if now - last >= _BAR_NS:
                    last = now
                    bar.update(task, completed=done, total=total, description=detail(), refresh=True)

            yield update

    def _lines(self, name: str, unit: str, detail: Callable[[], str]) -> Callable[[int, int], None]:
        start = last = time.perf_counter_ns()

        def update(done: int, total: int) -> None:
            nonlocal last
            now = time.perf_counter_ns()
            if now - last >= _LINE_NS:
                last = now
                left = (now - start) * 1e-9 * (total - done) / done if done else None
                remaining = f", about {left:.0f} s left" if left is not None else ""
                more = f"; {text}" if (text := detail()) else ""
                print(f"{name}: {done} of {total} {unit}{remaining}{more}", file=self._stream, flush=True)

        return update
