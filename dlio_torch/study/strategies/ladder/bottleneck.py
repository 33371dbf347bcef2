"""Decides whether the loader is the bottleneck, and whether more rounds are needed for the decision.

The loader is called the bottleneck where the throughput without any of its cost is higher by 5 % at least and
beyond noise.  It is called none where the 95 % interval of that gain ends below 10 %, or where the gain is below 10 %
and within noise and no run waited for data for more than 2 % of a step.  Else nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.ladder.gains import Gain
from dlio_torch.study.strategies.ladder.rungs import CONFIGURED, HAND_OVER, LADDER
from dlio_torch.study.values import listed

MUCH = 0.05
LITTLE = 0.10
NO_WAIT = 0.02


def is_bottleneck(effects: Sequence[Effect]) -> bool | None:
    """Whether the loader is the bottleneck, from all rungs; ``None``: undecided."""
    by_name = {item.rung.name: item for item in effects}
    first, whole = by_name[CONFIGURED], by_name[HAND_OVER].gain
    if whole is None:
        return None
    if whole.beyond_noise and whole.ratio - 1 >= MUCH:
        return True
    # Waiting is not all: a loader may also take cores from the trainer.
    small = not whole.beyond_noise and whole.ratio - 1 < LITTLE
    if ends_low(whole) or (small and _hardly_waits(first)):
        return False
    return None


def ends_low(whole: Gain) -> bool:
    """Whether the interval of a gain ends below the gain that makes a bottleneck."""
    return whole.high is not None and whole.high - 1 < LITTLE


def unclear(effects: Sequence[Effect]) -> list[Effect]:
    """Rungs whose cost is within noise but may be 5 % or more of a step as configured."""
    step = next(item.step_s for item in effects if item.rung.name == CONFIGURED)
    return [item for item in effects if item.rung.name in LADDER and step and _could_be(item.cost, MUCH * step)]


def inconclusive(effects: Sequence[Effect]) -> str:
    """The question that more rounds could answer, in words; ``""``: none.

    Where the loader is not the bottleneck, it does not matter what each of its costs is.
    """
    verdict = is_bottleneck(effects)
    if verdict is None:
        whole = next(item.gain for item in effects if item.rung.name == HAND_OVER)
        return "" if whole is None else "whether the loader is the bottleneck"
    costs = [item.rung.removed for item in unclear(effects)] if verdict else []
    return f"what {listed(costs)} cost{'s' if len(costs) == 1 else ''}" if costs else ""


def _could_be(gain: Gain | None, seconds: float) -> bool:
    if gain is None or gain.beyond_noise:
        return False
    return gain.interval_s is None or gain.interval_s[1] >= seconds


def _hardly_waits(first: Effect) -> bool:
    return first.wait is not None and first.step is not None and first.wait.high <= NO_WAIT * first.step.low
