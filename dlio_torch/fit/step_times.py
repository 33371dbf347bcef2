"""The steps of a recorded training: the time between two fetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import numpy.typing as npt

from dlio_torch.compute.distributions import Distribution, StepTime
from dlio_torch.errors import ConfigError
from dlio_torch.fit.calls_without_loader import reads_of, seconds_of_steps
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.run_delays import run_delays
from dlio_torch.iotrace.fidelity.distances import ks
from dlio_torch.units import counted, format_duration

Floats = npt.NDArray[np.float64]

_CONSTANT = 0.02
"""Standard deviation, relative to the mean, up to which step times count as constant."""
_OUTLIER = 8.0
"""Distance of an outlier from the median, in interquartile ranges."""
_WARM_UP = 2.0
"""Length of a first step, relative to the longest usual one, from which it is named."""
_DRAWS = 20000  # of a candidate distribution: its quantiles are known to 1 %


@dataclass(frozen=True)
class StepTimes:
    """Times between two fetches of training.

    Attributes:
        usual: seconds, float64 of ``(n,)``, without outliers.
        outliers: seconds of those that are far above the others.
        first: seconds of the first step, which is no part of the others; ``None``: it is the only one.
    """

    usual: Floats
    outliers: Floats
    first: float | None = None


def fit_steps(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``compute``, without evaluation."""
    recorded = training.training
    if recorded is None:
        return _without_loader(training, data)
    times = step_times(training, recorded)
    return findings(_compute(times, training.world_size), _remarks(times))


def _without_loader(training: RecordedTraining, data: DataFit) -> Findings:
    times = _split(seconds_of_steps(reads_of(training, data)))
    # The recording does not say where a step ends: all that is known is how long the program does not read.
    values = _compute(times, training.world_size)
    compute = [replace(finding, evidence=_of_reads(finding), confidence="likely") for finding in values]
    return findings(compute, _remarks(times))


def _of_reads(finding: Finding) -> str:
    return finding.evidence.replace("between two fetches", "between the reads of two batches")


def step_times(training: RecordedTraining, recorded: RecordedLoader) -> StepTimes:
    """Seconds from the end of a fetch to the begin of the next one, on the first rank; the first one is kept apart.

    The step of the last batch of an epoch ends when the program asks for a further batch.  Checkpoints, and the fetches
    and steps of other loaders (evaluation), are no part of a step.
    """
    seconds = computed(training, recorded)
    usual = _split(seconds[1:]) if len(seconds) > 1 else StepTimes(seconds, np.zeros(0))
    return replace(usual, first=float(seconds[0]) if len(seconds) > 1 else None)


def computed(training: RecordedTraining, recorded: RecordedLoader) -> Floats:
    """Seconds of compute after each fetch of a loader, as the import hook timed them, in the order of the fetches.

    Waits for a core are no compute, if they are recorded: the emulation has its own.
    """
    fetches, spans = recorded.fetches.sort_values("start_ns"), training.recording.spans
    mine = spans[(spans["op"] == "compute") & (spans["pid"] == recorded.loader.pid) & (spans["step"] >= 0)]
    mine = mine[mine["file"] == f"loader {recorded.loader.id}"]
    place = np.searchsorted(fetches["end_ns"].to_numpy(), mine["start_ns"].to_numpy(), side="right") - 1
    known = place >= 0
    spent = ((mine["end_ns"] - mine["start_ns"]).to_numpy() - run_delays(spans, mine))[known]
    timed = np.bincount(place[known], minlength=len(fetches)) > 0
    return np.bincount(place[known], spent, minlength=len(fetches))[timed] / 1e9


def _split(times: Floats) -> StepTimes:
    """Separates outliers: at most one in twenty times, far above the median."""
    if len(times) < 8:
        return StepTimes(times, np.zeros(0))
    lower, median, upper = np.quantile(times, [0.25, 0.5, 0.75])
    far = times > median + _OUTLIER * max(upper - lower, 0.05 * median)
    if far.mean() > 0.05:
        return StepTimes(times, np.zeros(0))
    return StepTimes(times[~far], times[far])


def _compute(times: StepTimes, ranks: int) -> Iterator[Finding]:
    """Distribution of step times."""
    if not len(times.usual):
        return
    mean, stdev = float(times.usual.mean()), float(times.usual.std())
    count = counted(len(times.usual), "time")
    yield Finding("compute.mode", "sleep", "what the program computes is not recorded; its time passes", "assumed")
    exchange = "; the exchange of gradients between the ranks is part of it" if ranks > 1 else ""
    yield Finding("compute.step_s", round(mean, 6), f"mean of {count} between two fetches{exchange}")
    if stdev <= _CONSTANT * mean:
        yield Finding("compute.distribution", "constant", f"they differ by {stdev / mean:.1%} only" if mean else "none")
        return
    name, distance = best_distribution(times.usual)
    yield Finding("compute.stdev_s", round(stdev, 6), f"standard deviation of {count}")
    evidence = f"Kolmogorov-Smirnov distance {distance:.2f}, the smallest of all distributions"
    yield Finding("compute.distribution", name, evidence, "likely")


def best_distribution(times: Floats) -> tuple[Distribution, float]:
    """The distribution with the same mean and standard deviation that is closest to ``times``.

    Args:
        times: seconds, float64 of ``(n,)``, not all equal.

    Returns:
        Its name, and its Kolmogorov-Smirnov distance from ``times``.
    """
    distances: dict[Distribution, float] = {}
    for name in get_args(Distribution):
        try:
            candidate = StepTime(float(times.mean()), float(times.std()), name)
        except ConfigError:  # it cannot have this standard deviation
            continue
        distances[name] = ks(times, candidate.draw(np.random.default_rng(0), _DRAWS))
    best = min(distances, key=lambda name: distances[name])
    return best, distances[best]


def _remarks(times: StepTimes) -> Iterator[str]:
    if times.first is not None and len(times.usual) and times.first > _WARM_UP * float(times.usual.max()):
        usual = format_duration(float(np.median(times.usual)))
        yield f"the first step took {format_duration(times.first)}, the others {usual}; it is emulated like the others"
    if len(times.outliers):
        longest = format_duration(float(times.outliers.max()))
        yield (
            f"{counted(len(times.outliers), 'step')} of {len(times.usual) + len(times.outliers)} took far longer than "
            f"the others (up to {longest}) and are not emulated"
        )
