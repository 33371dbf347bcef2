"""Compute on a GPU: a kernel that counts clock cycles, queued on a stream and timed with events.

The kernel (``torch.cuda._sleep``) keeps one multiprocessor busy, not the memory: it stands for the
time of the model's kernels, not for their effect on the GPU.  Cycles per nanosecond are measured
with CUDA events at the start and corrected after every step, since the clock of a GPU moves with
load and temperature.  The host waits as ``torch.cuda.synchronize`` does, without the interpreter
lock.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Protocol, cast

from dlio_torch.environment.private_names import gpu_sleep
from dlio_torch.errors import MissingPackageError, PreconditionError

# An interrupt has to wait for the kernels in the queue, two of these at most.
SLICE_NS = 50_000_000
_PROBE_CYCLES = 1_000_000
_PROBES = 7
# Events resolve half a microsecond: shorter kernels say nothing about the clock.
_LEAST_CORRECTION_NS = 100_000
_WEIGHT = 0.2


class _Event(Protocol):
    def record(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: _Event) -> float: ...


class CudaQueue:
    """A stream of the current CUDA device that can be kept busy until a deadline.

    Attributes:
        implementation: code that spends the time, for reports.
        cycles_per_ns: the present estimate of the rate at which the kernel counts.
        overhead_ns: what a step costs the host beyond the kernel: launch and wake-up.

    Raises:
        PreconditionError: torch finds no GPU, or cannot use it.
    """

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingPackageError(
                "compute.mode=cuda needs torch", hint="install torch: pip install torch"
            ) from error
        if not torch.cuda.is_available():
            raise PreconditionError(
                "compute.mode=cuda needs a GPU, and torch finds none on this machine",
                hint="use compute.mode=spin or compute.mode=sleep, or a torch built for this machine's GPU",
            )
        self._cuda: Any = torch.cuda
        try:
            self._device = torch.cuda.current_device()
            self._stream = self._cuda.Stream(self._device)
            self.implementation = f"clock-counting kernel on {torch.cuda.get_device_name(self._device)}"
            self.cycles_per_ns, self.overhead_ns = self._calibrate()
        except RuntimeError as error:
            raise PreconditionError(
                f"compute.mode=cuda cannot use the GPU: {error}",
                hint="check the GPU with nvidia-smi, or use compute.mode=spin",
            ) from error

    def describe(self) -> dict[str, Any]:
        """Facts for reports: device number, rate and overhead as calibrated at the start."""
        return {"device": self._device, "cycles_per_ns": self.cycles_per_ns, "overhead_ns": self.overhead_ns}

    def busy_until(self, deadline_ns: int) -> int:
        """Queue work that ends at the deadline (``CLOCK_MONOTONIC``, ns), wait for it; returns the time then.

        A remainder that the estimate left is queued once more, so the deadline is never missed early.
        """
        while (left := deadline_ns - time.monotonic_ns()) > 0:
            self._run(max(left - self.overhead_ns, 1))
        return time.monotonic_ns()

    def _run(self, ns: int) -> None:
        """Keep the GPU busy for ``ns``: slices back to back, with at most two in the queue."""
        begin = self._record()
        waiting: list[_Event] = []
        left = ns
        while left > 0:
            part = min(left, SLICE_NS)
            with self._cuda.stream(self._stream):
                gpu_sleep(self._cuda, max(1, round(part * self.cycles_per_ns)))
            waiting.append(self._record())
            left -= part
            if len(waiting) == 2:
                waiting.pop(0).synchronize()
        end = waiting[-1]
        end.synchronize()
        if ns >= _LEAST_CORRECTION_NS:
            seen_ns = begin.elapsed_time(end) * 1e6
            # A neighbour on the same GPU may stretch one kernel tenfold: no single step moves the rate far.
            ratio = min(max(ns / seen_ns, 0.5), 2.0) if seen_ns > 0 else 1.0
            self.cycles_per_ns *= 1 + _WEIGHT * (ratio - 1)

    def _record(self) -> _Event:
        event = cast(_Event, self._cuda.Event(enable_timing=True))
        event.record(self._stream)
        return event

    def _calibrate(self) -> tuple[float, int]:
        """Cycles per ns, and the host's time beyond the kernel in ns; medians of a few kernels."""
        rates, overheads = [], []
        for number in range(_PROBES + 2):
            start = time.monotonic_ns()
            begin = self._record()
            with self._cuda.stream(self._stream):
                gpu_sleep(self._cuda, _PROBE_CYCLES)
            end = self._record()
            end.synchronize()
            host_ns = time.monotonic_ns() - start
            kernel_ns = begin.elapsed_time(end) * 1e6
            if number < 2 or kernel_ns <= 0:  # the first kernels load the module and raise the clock
                continue
            rates.append(_PROBE_CYCLES / kernel_ns)
            overheads.append(max(host_ns - kernel_ns, 0))
        if not rates:
            raise RuntimeError("the clock-counting kernels take no time")
        return statistics.median(rates), round(statistics.median(overheads))
