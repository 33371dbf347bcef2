"""Rates of the last seconds for the progress display: samples, bytes, accelerator utilisation."""

from __future__ import annotations

import time

from dlio_torch.train.steps import StepLog
from dlio_torch.units import format_number, format_rate


class LiveRates:
    """Text on what one rank did since the last call.

    Args:
        log: the step log of the rank; its records count when they are flushed, once a second.
        ranks: number of ranks, which are taken to be equally fast.
        emulates: whether compute is emulated, so that there is a utilisation.
    """

    def __init__(self, log: StepLog, ranks: int, *, emulates: bool) -> None:
        self._log = log
        self._ranks = ranks
        self._emulates = emulates
        self._last_ns = time.perf_counter_ns()
        self._before = log.totals
        self._text = ""

    def text(self) -> str:
        """``"95.2 samples/s, 48.8 MiB/s, utilisation 94 %"``; empty before the first records."""
        now, totals = self._log.flushed_ns, self._log.totals
        seconds = (now - self._last_ns) * 1e-9
        if seconds > 0 and totals.samples > self._before.samples:
            samples = (totals.samples - self._before.samples) * self._ranks / seconds
            size = (totals.bytes - self._before.bytes) * self._ranks / seconds
            busy = (totals.requested_ns - self._before.requested_ns) * 1e-9 / seconds
            utilisation = f", utilisation {100 * min(busy, 1):.0f} %" if self._emulates else ""
            self._text = f"{format_number(samples)} samples/s, {format_rate(size)}{utilisation}"
            self._last_ns, self._before = now, totals
        return self._text
