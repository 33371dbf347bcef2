"""Length of the runs that measure a combination: steps, warm-up, repeats, and the compute time of a step."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.node.demand import NodeDemand
from dlio_torch.node.limits.node_limit import NodeLimit

_LONG_STEP = 0.25
"""Share of the length of a measurement above which a step is long."""
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


def run_length(demand: NodeDemand, slowest: NodeLimit | None, seconds: float, available: int) -> RunLength:
    """Returns the length of runs of about some seconds.

    A run has at least four measured steps, and each combination two runs; with long steps at least three and one run.
    Compute is at most as long as the whole measurement.

    Args:
        demand: of the accelerators.
        slowest: the limit that the loader meets; ``None``: not known.
        seconds: length of the measured part.
        available: steps that the data give.
    """
    compute_s = demand.step_s / demand.hold_steps
    step_s = min(compute_s, seconds)
    if slowest is not None and slowest.samples_per_s:
        step_s = max(step_s, demand.batch_size / slowest.samples_per_s / demand.hold_steps)
    warmup, least, repeats = (1, 3, 1) if step_s > _LONG_STEP * seconds else (2, 4, 2)
    wanted = round(seconds / step_s) if step_s else _STEPS_WITHOUT_TIMES
    steps = min(available, warmup + max(least, wanted))
    shortened = seconds if compute_s > seconds else None
    return RunLength(steps, min(warmup, max(0, steps - 1)), repeats, steps * step_s, shortened)
