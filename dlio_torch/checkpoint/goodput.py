"""Goodput: share of time that training loses to checkpoints and failures, as a function of the interval of saves.

Model, with the symbols::

    M  mean time between failures of the whole job; times between failures are exponential (a Poisson process)
    S  stall of a save: training stands still
    D  seconds from the beginning of a save until it is durable; D = S for a synchronous save
    s  slowdown: a step takes 1 + s times as long while a save is being written, from S to D
    R  restart: detect the failure, start the job, read the checkpoint
    T  interval: from the beginning of a save to the beginning of the next one, T >= D
    C  cost of a save = S + (D - S) s / (1 + s): time that it takes from training
    W  work between two saves = T - C

A save holds the state at its beginning.  A failure throws the job back to the last durable save: less than D after
the beginning of a save, that is the save before.  A restart can fail, too.  After it, the next save begins when the
work W is done again, in W seconds.

Lost share, exact: time is cut at the failures, which renews the process (renewal reward theorem).  A piece lasts X,
exponential with mean M.  The work of save number i (from 0) of a piece is kept if X >= R + W + D + i T, the moment at
which the save becomes durable.  So the kept work of a piece has the mean ``W sum_i exp(-(R + W + D + i T) / M)``, and::

    lost share = 1 - W exp(-(R + W + D) / M) / (M (1 - exp(-T / M)))

With s = 0 and D = S this is the result of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
restart dumps", Future Generation Computer Systems 22 (2006) 303-312, equation for the total wall clock time: per
second of work it takes ``M exp(R / M) (exp(T / M) - 1) / (T - S)``.

Best interval: the derivative is zero where ``T - C = M (1 - exp(-T / M))``, which has one solution.  It depends neither
on R nor, apart from C, on D; where it is below D, D is best.  For C much smaller than M it is close to sqrt(2 C M):
J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17 (1974)
530-531.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dlio_torch.units import counted, format_duration, percent

NO_MTBF = "set checkpoint.mtbf_s to the mean time between failures of the whole job, for example checkpoint.mtbf_s=3h"
"""Hint for runs whose rate of failures is not known."""

_POINTS = 101
_HALVINGS = 100


@dataclass(frozen=True)
class Goodput:
    """Times of a job from which its goodput follows.

    Attributes:
        stall_s: seconds for which training stands still for a save.
        durable_s: seconds from the beginning of a save until it is durable, the stall included.
        slowdown: how much longer a step takes between stall and durability, 0.1: 10 % longer; ``None``: not measured,
            counts as no slowdown.
        step_s: mean seconds of a step without saves.
        mtbf_s: mean seconds between two failures of the whole job; 0: not known.
        start_s: seconds to detect a failure and to start the job again, without reading.
        read_s: seconds to read a checkpoint; ``None``: not measured, lost shares are lower bounds.
        interval_s: seconds from the beginning of a save to that of the next one in the measured run, ``None`` if
            saves have no fixed interval.
    """

    stall_s: float
    durable_s: float
    slowdown: float | None
    step_s: float
    mtbf_s: float
    start_s: float
    read_s: float | None = None
    interval_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.stall_s <= self.durable_s:
            raise ValueError("a save is durable after its stall, and both take 0 s or longer")
        if self.step_s <= 0 or self.mtbf_s < 0:
            raise ValueError("a step takes time, and the time between failures is not negative")
        if any(value is not None and value < 0 for value in (self.start_s, self.read_s, self.slowdown)):
            raise ValueError("a restart takes 0 s or longer, and a slowdown is not negative")

    @property
    def background_s(self) -> float:
        """Seconds in which a save is written beside training steps."""
        return self.durable_s - self.stall_s

    @property
    def cost_s(self) -> float:
        """Seconds that a save takes from training: the stall, and the time by which it delays steps."""
        slowdown = 0.0 if self.slowdown is None else self.slowdown
        return self.stall_s + self.background_s * slowdown / (1 + slowdown)

    @property
    def restart_s(self) -> float:
        """Seconds from a failure until training goes on; without reading if that was not measured."""
        return self.start_s if self.read_s is None else self.start_s + self.read_s

    @property
    def shortest_interval_s(self) -> float:
        """Shortest interval: the save before is durable, and a step lies between two saves."""
        return max(self.durable_s, self.cost_s + self.step_s)


@dataclass(frozen=True)
class GoodputPoint:
    """A point of the curve of lost time over the interval.

    Attributes:
        interval_s: seconds between the beginnings of two saves.
        lost_share: share of time that saves and failures cost.
        save_share: share of time that saves would cost without failures.
    """

    interval_s: float
    lost_share: float
    save_share: float


def steps_interval_s(inputs: Goodput, steps: int) -> float:
    """Seconds between the beginnings of two saves that follow each other after ``steps`` steps."""
    return steps * inputs.step_s + inputs.cost_s


def interval_steps(inputs: Goodput, interval_s: float) -> int:
    """Steps between two saves at an interval, a whole number, at least 1."""
    return max(1, round((interval_s - inputs.cost_s) / inputs.step_s))


def lost_share(inputs: Goodput, interval_s: float) -> float:
    """Share of time (0 to 1) that training loses to saves and failures, see the module's formula.

    Args:
        inputs: the times of the job.
        interval_s: seconds from the beginning of a save to that of the next one.

    Raises:
        ValueError: the time between failures is not known, or a save begins before the last one is durable.
    """
    mtbf = inputs.mtbf_s
    if not mtbf:
        raise ValueError(NO_MTBF)
    if interval_s <= 0 or interval_s < inputs.durable_s:
        raise ValueError(_overlap(inputs, interval_s))
    work = interval_s - inputs.cost_s
    kept = work * math.exp(-(inputs.restart_s + work + inputs.durable_s) / mtbf)
    return max(0.0, 1 + kept / (mtbf * math.expm1(-interval_s / mtbf)))


def best_interval_s(inputs: Goodput) -> float:
    """Interval of saves that loses the smallest share of time, in seconds.

    Raises:
        ValueError: the time between failures is not known.
    """
    if not inputs.mtbf_s:
        raise ValueError(NO_MTBF)
    cost = inputs.cost_s / inputs.mtbf_s
    low, high = 0.0, 1 + cost
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle + math.expm1(-middle) < cost:
            low = middle
        else:
            high = middle
    return max(high * inputs.mtbf_s, inputs.shortest_interval_s)


def curve(inputs: Goodput) -> list[GoodputPoint]:
    """Points at equal distances on a logarithmic axis of intervals, around the best interval.

    They reach from a hundredth of the best interval, but not below the shortest possible one, to ten times the best
    interval or the time between failures, whichever is longer; the interval of the run lies between them.

    Raises:
        ValueError: the time between failures is not known.
    """
    best = best_interval_s(inputs)
    configured = best if inputs.interval_s is None else inputs.interval_s
    first = max(inputs.shortest_interval_s, min(best / 100, configured))
    last = max(10 * best, inputs.mtbf_s, configured)
    ratio = (last / first) ** (1 / (_POINTS - 1))
    # Rounding must not put the first point below the shortest interval.
    intervals = [first, *(first * ratio**number for number in range(1, _POINTS))]
    return [GoodputPoint(each, lost_share(inputs, each), inputs.cost_s / each) for each in intervals]


def figures(inputs: Goodput) -> dict[str, Any]:
    """Part ``goodput`` of ``summary.json``: lost shares, the best interval, the run's own, and the assumptions.

    ``why`` says why a figure is ``None``, or a lower bound.
    """
    part = {**no_figures(NO_MTBF), "interval_s": inputs.interval_s, "inputs": asdict(inputs)}
    if not inputs.mtbf_s:
        return part
    best = best_interval_s(inputs)
    part["lost_share"], part["best_interval_s"] = lost_share(inputs, best), best
    if inputs.interval_s is not None and inputs.interval_s >= inputs.durable_s:
        part["lost_share_at_interval"] = lost_share(inputs, inputs.interval_s)
    part["why"] = "; ".join(_reasons(inputs)) or None
    part["assumptions"] = assumptions(inputs)
    return part


def no_figures(why: str) -> dict[str, Any]:
    """Part ``goodput`` of ``summary.json`` of a run for which nothing can be computed, with the reason."""
    names = ("lost_share", "best_interval_s", "interval_s", "lost_share_at_interval")
    return {**dict.fromkeys(names), "why": why, "assumptions": [], "inputs": None}


def assumptions(inputs: Goodput) -> list[str]:
    """Assumptions behind the figures, a sentence each."""
    return [
        f"Failures come at random, independently of each other, every {format_duration(inputs.mtbf_s)} on average; "
        "they can also come during a restart.",
        "A save holds the state of the moment at which it begins. A failure loses the work since the beginning of the "
        "last save that was durable by then.",
        f"A save stops training for {format_duration(inputs.stall_s)} and is durable after "
        f"{format_duration(inputs.durable_s)}, at every interval. The next one begins only then.",
        *_background(inputs),
        _restart(inputs),
        "After a restart, the next save follows after as many steps as lie between two saves.",
    ]


def _background(inputs: Goodput) -> list[str]:
    """Sentence on the steps beside which a save is written; none for a synchronous save."""
    if not inputs.background_s:
        return []
    if inputs.slowdown is None:
        return ["Steps are as fast while a save is written as without it; their slowdown was not measured."]
    slower = f"{percent(inputs.slowdown)} longer" if inputs.slowdown else "no longer"
    return [f"Steps take {slower} while a save is written."]


def _restart(inputs: Goodput) -> str:
    """Sentence on the time from a failure until training goes on."""
    start = f"{format_duration(inputs.start_s)} to detect the failure and to start the job (checkpoint.restart_s)"
    if not inputs.start_s:
        start = "no time to detect the failure and to start the job (checkpoint.restart_s=0)"
    if inputs.read_s is None:
        return f"A restart takes {start}; the time to read the checkpoint was not measured and is left out."
    return f"A restart takes {start}, and {format_duration(inputs.read_s)} to read the checkpoint."


def _reasons(inputs: Goodput) -> list[str]:
    """Reasons why figures are missing, or lower bounds."""
    reasons = []
    if inputs.interval_s is None:
        reasons.append(
            "saves of this run have no fixed interval; set checkpoint.every_steps or checkpoint.every_epochs"
        )
    elif inputs.interval_s < inputs.durable_s:
        reasons.append(_overlap(inputs, inputs.interval_s))
    if inputs.read_s is None:
        reasons.append(
            "the time to read a checkpoint was not measured, so lost shares are lower bounds "
            "(checkpoint.restore=true measures it)"
        )
    return reasons


def _overlap(inputs: Goodput, interval_s: float) -> str:
    """Sentence on saves that follow each other too fast, with the smallest number of steps that is enough."""
    steps = max(1, math.ceil((inputs.durable_s - inputs.cost_s) / inputs.step_s))
    return (
        f"saves every {format_duration(interval_s)} would begin before the last one is durable, which takes "
        f"{format_duration(inputs.durable_s)}; save after {counted(steps, 'step')} or more"
    )
