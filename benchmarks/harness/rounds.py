"""Interleaved rounds: each round runs every variant once and begins with another variant than the last.

Load on the machine that lasts longer than a round slows all ways of that round, so that the ratio of two of them,
taken within the round, hardly changes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import psutil

from benchmarks.harness.tables import Spread

Figures = Mapping[str, float]
"""What one measurement gave, by the name of the figure."""

Measure = Callable[[], Figures]
T = TypeVar("T")


class Unavailable(Exception):
    """Raised if a variant cannot be measured here; the message gives the reason, or what to install."""


class Rounds:
    """Results of some rounds.

    Attributes:
        figures: by way, one entry a round.
        dropped: ways that could not be measured, with the reason; they have no figures.
    """

    def __init__(self, ways: Sequence[str]) -> None:
        self.figures: dict[str, list[Figures]] = {name: [] for name in ways}
        self.dropped: dict[str, str] = {}

    def drop(self, way: str, why: str) -> None:
        """Removes a variant and its results."""
        del self.figures[way]
        self.dropped[way] = why

    def values(self, way: str, figure: str) -> list[float]:
        """Values of one figure of a variant, one per round."""
        return [round_[figure] for round_ in self.figures[way]]

    def ratios(self, way: str, figure: str, baseline: str) -> list[float]:
        """Ratios of one figure of a variant to the baseline's figure in the same round.

        Raises:
            Unavailable: the baseline could not be measured.
        """
        if baseline not in self.figures:
            raise Unavailable(f"no ratio to the baseline {baseline}: {self.dropped.get(baseline, 'not measured')}")
        return [one / base for one, base in zip(self.values(way, figure), self.values(baseline, figure), strict=True)]

    def spread(self, way: str, figure: str) -> Spread:
        """Median and quartiles of one figure."""
        return Spread.of(self.values(way, figure))

    def ratio(self, way: str, figure: str, baseline: str) -> Spread:
        """Median and quartiles of :meth:`ratios`."""
        return Spread.of(self.ratios(way, figure, baseline))


def interleave(ways: Mapping[str, Measure], rounds: int, *, warmups: int = 1) -> Rounds:
    """Measures every variant once per round.

    Args:
        ways: by name; one that raises :class:`Unavailable` is left out from then on.
        rounds: that count.
        warmups: rounds before them that do not.
    """
    found = Rounds(list(ways))
    for turn in range(-warmups, rounds):
        for name in rotated(list(ways), turn):
            if name in found.dropped:
                continue
            try:
                figures = ways[name]()
            except Unavailable as error:
                found.drop(name, str(error))
                continue
            if turn >= 0:
                found.figures[name].append(figures)
    return found


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """All items, rotated so that each round begins with another one."""
    first = turn % len(items) if items else 0
    return [*items[first:], *items[:first]]


def rounds_of(arguments: Namespace, usual: int = 7) -> int:
    """Number of rounds: ``--rounds``, one with ``--quick``, or the usual number."""
    return int(arguments.rounds or (1 if arguments.quick else usual))


class Stopwatch:
    """Measures wall-clock time and processor time from its creation, without its own cost."""

    def __init__(self) -> None:
        self._children = _children_s(os.getpid())
        self._own = _own_s()
        self._began = time.perf_counter()

    def stop(self) -> tuple[float, float]:
        """Seconds since the start, and processor time of this process and its children, living and ended."""
        seconds, own = time.perf_counter() - self._began, _own_s() - self._own
        return seconds, own + _children_s(os.getpid()) - self._children


def _own_s() -> float:
    """Processor time of this process and of its children that have ended, s."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _children_s(pid: int) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(processor_s(child.pid) for child in psutil.Process(pid).children())
    return 0.0


def processor_s(pid: int) -> float:
    """Processor time of another process and its children until now, in seconds; counted in ticks of 10 ms."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(sum(psutil.Process(pid).cpu_times()[:4])) + _children_s(pid)
    return 0.0


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Wall-clock seconds ``s`` and processor seconds ``cpu_s`` of one call."""
    watch = Stopwatch()
    work()
    seconds, cpu_s = watch.stop()
    return {"s": seconds, "cpu_s": cpu_s}


def say(text: str) -> None:
    """Prints one line of progress on standard error."""
    print(f"[{time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)
