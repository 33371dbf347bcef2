"""Emulates the model's compute: a step sleeps, spins, or keeps a GPU busy for a given time.

A step's time is spent without holding the interpreter lock, so loader threads run as they would
beside the real model.  What :meth:`Emulator.spend` returns ends with the emulated work itself.  When
other Python threads hold the interpreter lock at that moment, the caller waits for it (up to
``sys.getswitchinterval()``, 5 ms, for each of them), just as a training loop coming back from a
kernel would: that wait is not part of the achieved time, and a caller who takes the time around
``spend`` sees it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from dlio_torch.compute.distributions import Durations, StepTime
from dlio_torch.compute.timers import DEFAULT_SPIN_TAIL_NS, Timer, open_timer
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.errors import ConfigError

_EVALUATION_STREAM = 1


class Emulator:
    """Emulated compute of one rank; made by :func:`make_emulator`, used by one thread.

    Attributes:
        mode: ``sleep``, ``spin``, ``cuda`` or ``none``.
        exact: whether times are good to some microseconds on an idle core; false means: do not trust
            the compute figures of this run.
        implementation: code that spends the time, for reports.
        details: further facts for reports, JSON-ready.
    """

    def __init__(
        self,
        mode: str,
        spend_until: Callable[[int], int] | None,
        durations: tuple[Durations, Durations],
        *,
        exact: bool,
        implementation: str,
        details: dict[str, Any],
        close: Callable[[], None] | None = None,
    ) -> None:
        self.mode = mode
        self.exact = exact
        self.implementation = implementation
        self.details = details
        self._spend_until = spend_until
        self._close = close
        #: ``requested_ns(step)``: time of training step ``step`` (0, 1, ... over the whole run) in ns.
        self.requested_ns: Callable[[int], int] = durations[0].ns
        #: ``requested_eval_ns(step)``: the same for evaluation steps; drawn independently, with the
        #: mean ``eval_step_s`` and the same relative spread as training steps.
        self.requested_eval_ns: Callable[[int], int] = durations[1].ns

    def spend(self, ns: int) -> int:
        """Emulate ``ns`` of compute now; returns the achieved time in ns, never less than ``ns``.

        In mode ``none``, or for 0 ns, it returns 0 at once.
        """
        if ns <= 0 or self._spend_until is None:
            return 0
        start = time.monotonic_ns()
        return self._spend_until(start + ns) - start

    def describe(self) -> dict[str, Any]:
        """Facts about the emulation, for ``summary.json``."""
        return {
            "mode": self.mode,
            "how": self.implementation,
            "exact": self.exact,
            "clock": "CLOCK_MONOTONIC",
            **self.details,
        }

    def close(self) -> None:
        """Release threads and device resources; a second call has no effect."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def no_compute(step: int) -> int:
    """Requested compute time of a step without emulated compute."""
    return 0


def make_emulator(
    config: ComputeConfig,
    *,
    seed: int,
    rank: int,
    spin_tail_ns: int = DEFAULT_SPIN_TAIL_NS,
    timer: Timer | None = None,
) -> Emulator:
    """Make the emulator that ``config`` describes.

    Args:
        config: the options of ``compute``.
        seed: seed of the step times.
        rank: number of this rank; ranks draw their step times independently.
        spin_tail_ns: last part of a sleep, which is spun; :mod:`.calibrate` chooses it.
        timer: waits in modes sleep and spin instead of the machine's best; closed with the emulator.

    Raises:
        ConfigError: no distribution has this mean and standard deviation.
        PreconditionError: ``compute.mode=cuda`` and torch finds no GPU.
    """
    step_time = StepTime(config.step_s, config.stdev_s, config.distribution)
    eval_time = _eval_step_time(step_time, config.eval_step_s)
    mean_s, stdev_s = step_time.moments()
    durations = (
        Durations(step_time, seed=seed, rank=rank),
        Durations(eval_time, seed=seed, rank=rank, stream=_EVALUATION_STREAM),
    )
    details: dict[str, Any] = {"distribution": config.distribution, "mean_s": mean_s, "stdev_s": stdev_s}
    if not config.emulated:
        return Emulator("none", None, durations, exact=True, implementation="no compute is emulated", details=details)
    if config.mode == "cuda":
        from dlio_torch.compute.cuda import CudaQueue

        queue = CudaQueue()
        return Emulator(
            "cuda",
            queue.busy_until,
            durations,
            exact=True,
            implementation=queue.implementation,
            details=details | queue.describe(),
        )
    if config.mode not in ("sleep", "spin"):
        raise ConfigError(f"compute.mode={config.mode} is not a known mode", hint="use sleep, spin, cuda or none")
    if timer is None:
        timer = open_timer(threads=config.threads, spin_tail_ns=spin_tail_ns)
    if config.mode == "sleep":
        wait = timer.sleep_until
        details["spin_tail_ns"] = spin_tail_ns
    else:
        wait = timer.spin_until
        details |= {"threads": config.threads, "cores": len(os.sched_getaffinity(0))}
    return Emulator(
        config.mode,
        wait,
        durations,
        exact=timer.exact,
        implementation=timer.implementation,
        details=details,
        close=timer.close,
    )


def _eval_step_time(step_time: StepTime, eval_step_s: float) -> StepTime:
    if step_time.mean_s == 0:
        return StepTime(eval_step_s)
    return replace(step_time, mean_s=eval_step_s, stdev_s=step_time.stdev_s * eval_step_s / step_time.mean_s)


class Preprocess:
    """CPU work on samples where they are read: in a loader worker or a reader thread.

    The time is CPU time of the calling thread: on a crowded node it takes longer, as the work that it
    stands for would.  The interpreter lock is free meanwhile.  Any number of threads may use one
    object, and it can be pickled for a worker process.

    Args:
        config: the options of ``compute``; ``preprocess_s`` is the CPU time of one sample in seconds.
        timer: uses the CPU time, instead of the machine's best.
    """

    def __init__(self, config: ComputeConfig, *, timer: Timer | None = None) -> None:
        self._ns_per_sample = round(config.preprocess_s * 1e9)
        self._timer = timer

    def burn(self, samples: int) -> int:
        """Use the CPU for ``samples`` samples; returns the CPU time used in ns (0 without emulated preprocessing)."""
        ns = self._ns_per_sample * samples
        if ns <= 0:
            return 0
        if self._timer is None:
            self._timer = open_timer()
        return self._timer.burn(ns)

    def __getstate__(self) -> dict[str, Any]:
        # A timer is made of this process's functions: the other side opens its own.
        return {"_ns_per_sample": self._ns_per_sample, "_timer": None}
