"""Length of the runs that measure a combination: steps, warm-up, repeats, and the compute time of a step."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.node.demand import NodeDemand
from dlio_torch.node.limits.node_limit import NodeLimit

_REPEATS = 3
_PART = 2 / 3  # of the length of a measurement: the measured part of a run
_LONGEST = 1.5  # lengths of a measurement that each of several runs may take
_STEPS_WITHOUT_TIMES = 100


@dataclass(frozen=True)
class RunLength:
    """Length of each run of a combination.

    Attributes:
        steps: all steps.
        warmup: how many of them are not measured.
        repeats: runs of each combination.
        run_s: expected seconds of a run, without its start.
        step_s: compute time of a step in these runs where the recipe's takes too long; ``None``: as in the recipe.
    """

    steps: int
    warmup: int
    repeats: int
    run_s: float
    step_s: float | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """The arguments of such a run."""
        shortened = () if self.step_s is None else (f"compute.step_s={self.step_s:g}",)
        return (f"train.steps={self.steps}", f"train.warmup_steps={self.warmup}", *shortened)


def run_length(
    demand: NodeDemand, slowest: NodeLimit | None, seconds: float, available: int, ahead: int = 0
) -> RunLength:
    """Returns the length of runs of about some seconds.

    Each combination has three runs with at least four measured steps, and more than the loader reads batches ahead.
    Where steps are so long that this takes too much time, it has a single run of at least three measured steps.
    Compute is at most as long as the whole measurement.

    Args:
        demand: of the accelerators.
        slowest: the limit that the loader meets; ``None``: not known.
        seconds: length of a measurement.
        available: steps that the data give.
        ahead: most batches that a loader reads ahead.
    """
    compute_s = demand.step_s / demand.hold_steps
    step_s = min(compute_s, seconds)
    if slowest is not None and slowest.samples_per_s:
        step_s = max(step_s, demand.batch_size / slowest.samples_per_s / demand.hold_steps)
    warmup, repeats = 2, _REPEATS
    wanted = round(_PART * seconds / step_s) if step_s else _STEPS_WITHOUT_TIMES
    steps = warmup + max(4, ahead + 1, wanted)
    if steps * step_s > _LONGEST * seconds:
        warmup, repeats = 1, 1
        steps = warmup + max(3, round(seconds / step_s))
    steps = min(available, steps)
    shortened = seconds if compute_s > seconds else None
    return RunLength(steps, min(warmup, max(0, steps - 1)), repeats, steps * step_s, shortened)
