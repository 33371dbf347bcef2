"""Whether the loader is the bottleneck, and whether more rounds are needed to tell.

The loader is called the bottleneck where the throughput without any of its cost is higher by 5 % at least and
beyond noise.  It is called none where the 95 % interval of that gain ends below 10 %, or where the gain is below 10 %
and within noise and no run waited for data for more than 2 % of a step.  Else nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.sweep.headspace.gains import Gain
from dlio_torch.sweep.headspace.results import Measured
from dlio_torch.sweep.headspace.rungs import CONFIGURED, HAND_OVER, LADDER

MUCH = 0.05
LITTLE = 0.10
NO_WAIT = 0.02


def is_bottleneck(found: Sequence[Measured]) -> bool | None:
    """Whether the loader is the bottleneck, from all rungs; ``None``: cannot be told."""
    by_name = {one.rung.name: one for one in found}
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
    """Whether the interval of a gain ends below what would make a bottleneck."""
    return whole.high is not None and whole.high - 1 < LITTLE


def unclear(found: Sequence[Measured]) -> list[Measured]:
    """Rungs whose own cost is within noise, and could be 5 % of a step as configured or more."""
    step = next(one.step_s for one in found if one.rung.name == CONFIGURED)
    return [one for one in found if one.rung.name in LADDER and step and _could_be(one.own, MUCH * step)]


def undecided(found: Sequence[Measured]) -> str:
    """What more rounds could tell, in words; ``""``: nothing.

    Where the loader is not the bottleneck, it does not matter what each of its costs is.
    """
    verdict = is_bottleneck(found)
    if verdict is None:
        whole = next(one.gain for one in found if one.rung.name == HAND_OVER)
        return "" if whole is None else "whether the loader is the bottleneck"
    costs = [one.rung.removed for one in unclear(found)] if verdict else []
    return f"what {listed(costs)} cost{'s' if len(costs) == 1 else ''}" if costs else ""


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _could_be(own: Gain | None, seconds: float) -> bool:
    if own is None or own.beyond_noise:
        return False
    return own.interval_s is None or own.interval_s[1] >= seconds


def _hardly_waits(first: Measured) -> bool:
    return first.wait is not None and first.step is not None and first.wait.high <= NO_WAIT * first.step.low
