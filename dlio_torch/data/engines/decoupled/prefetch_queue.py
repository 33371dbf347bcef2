"""Prefetch queue for lanes: windows of samples in the order of requests, filled by any idle reader thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice

from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.engines.decoupled.incoming_samples import Incoming, IncomingReader, SampleWindow, one_by_one


class PrefetchQueue:
    """Queue of samples in the order of requests, several windows of which are prefetched.

    Args:
        order: numbers of the samples, without end.
        reader: reads samples.
        window: samples that are read together.
        ahead: windows that are read before a lane asks for them.
        whole: read samples; else find their lengths only.

    Attributes:
        change: is held where something here is looked at or changed, and told of it.
        whole: as given; may be changed at any time.
        share: does what can be done side by side while :meth:`samples` is asked.
    """

    def __init__(self, order: Iterator[int], reader: IncomingReader, window: int, ahead: int, *, whole: bool) -> None:
        self._order = order
        self._reader = reader
        self._window, self._ahead = window, ahead
        self.whole = whole
        self.change = threading.Condition()
        self.share: Share = one_by_one
        self._claimed = 0  # windows
        self._requested = 0
        self._coming: dict[int, SampleWindow] = {}  # those that are claimed and not asked for

    def samples(self) -> Iterator[Incoming]:
        """Yields the samples in order, with known lengths."""
        for number in count():
            with self.change:
                fresh = number == self._claimed  # else another thread has it, or has had it
                claimed = [self.claim() for _ in range(self._ahead if fresh else 0)]
            self._fetch_all(claimed)
            with self.change:
                window = self._coming.pop(number)
                self._requested = number + 1
                self.change.notify_all()
                self.change.wait_for(partial(getattr, window, "known"))
            yield from window.samples

    def has_room(self) -> bool:
        """Whether a window can be claimed; the caller must hold ``change``."""
        return self._claimed < self._requested + self._ahead

    def claim(self) -> SampleWindow:
        """Claims the next window, which the caller must fetch; the caller must hold ``change``."""
        window = _window([Incoming(number) for number in islice(self._order, self._window)], whole=self.whole)
        self._coming[self._claimed] = window
        self._claimed += 1
        return window

    def fetch(self, window: SampleWindow, share: Share) -> None:
        """Find the lengths of a window, notify the waiting threads, and read the window."""
        self._reader.find(window)
        with self.change:
            window.known = True
            self.change.notify_all()
        self._reader.read(window, share)

    def read(self, samples: Sequence[Incoming]) -> None:
        """Read samples whose lengths, but not contents, are known."""
        most = self._window
        for first in range(0, len(samples), most * self._ahead):
            some = samples[first : first + most * self._ahead]
            self._fetch_all([_window(some[start : start + most], whole=True) for start in range(0, len(some), most)])

    def _fetch_all(self, windows: Sequence[SampleWindow]) -> None:
        if windows:
            self.share([partial(self.fetch, window, one_by_one) for window in windows])
        if not all(window.known for window in windows):
            raise RuntimeError(
                "the epoch was ended before all lengths of samples were found"
            )  # parts are left out then; nobody hears of it


def _window(samples: Sequence[Incoming], *, whole: bool) -> SampleWindow:
    window = SampleWindow(samples, whole)
    for sample in samples:
        sample.done = window.done if whole else None
    return window
