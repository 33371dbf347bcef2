"""The steps of a recorded training: batch, epochs, number, and the time between two fetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.compute.distributions import Distribution, StepTime
from dlio_torch.errors import ConfigError
from dlio_torch.fit.calls_without_loader import amount_of_reads, reads_of, seconds_of_steps
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.iotrace.fidelity.distances import ks
from dlio_torch.units import counted, format_duration

Floats = npt.NDArray[np.float64]

_CONSTANT = 0.02
"""Standard deviation, relative to the mean, up to which step times count as constant."""
_OUTLIER = 8.0
"""Distance of an outlier from the median, in interquartile ranges."""
_DRAWS = 20000  # of a candidate distribution: its quantiles are known to 1 %
_OTHER_WORK = ("fetch", "checkpoint", "load")


@dataclass(frozen=True)
class StepTimes:
    """Times between two fetches of training.

    Attributes:
        usual: seconds, float64 of ``(n,)``, without outliers.
        outliers: seconds of those that are far above the others.
    """

    usual: Floats
    outliers: Floats


def fit_steps(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the groups ``compute`` and ``train``, without evaluation."""
    recorded = training.training
    if recorded is None:
        return _without_loader(training, data)
    times = step_times(training, recorded)
    return findings([*_amount(recorded), *_compute(times)], _remarks(times))


def _without_loader(training: RecordedTraining, data: DataFit) -> Findings:
    times = _split(seconds_of_steps(reads_of(training, data)))
    # The recording does not say where a step ends: all that is known is how long the program does not read.
    compute = [replace(finding, evidence=_of_reads(finding), confidence="likely") for finding in _compute(times)]
    return findings([*amount_of_reads(training, data), *compute], _remarks(times))


def _of_reads(finding: Finding) -> str:
    return finding.evidence.replace("between two fetches", "between the reads of two batches")


def step_times(training: RecordedTraining, recorded: RecordedLoader) -> StepTimes:
    """Seconds from the end of a fetch to the begin of the next one of the same epoch, on the first rank.

    Checkpoints and the fetches of other loaders (evaluation) in between are no part of it.
    """
    fetches = recorded.fetches.sort_values("start_ns")
    ends, epochs = fetches["end_ns"].to_numpy(), fetches["offset"].to_numpy()
    following = np.append(fetches["start_ns"].to_numpy()[1:], 0)
    within = np.append(epochs[1:] == epochs[:-1], False)
    gaps = (following - ends)[within] - _other_work(training, recorded, ends[within], following[within])
    return _split(np.maximum(gaps, 0) / 1e9)


def _other_work(training: RecordedTraining, recorded: RecordedLoader, begins: Floats, ends: Floats) -> Floats:
    """Nanoseconds of other recorded work of the trainer within each interval."""
    spans = training.recording.spans
    other = spans[spans["op"].isin(_OTHER_WORK) & (spans["pid"] == recorded.loader.pid)]
    other = other[~other.index.isin(recorded.fetches.index)]
    return np.array([_overlap(other, begin, end) for begin, end in zip(begins, ends, strict=True)], np.float64)


def _overlap(spans: pd.DataFrame, begin: float, end: float) -> float:
    starts, stops = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    return float(np.maximum(np.minimum(stops, end) - np.maximum(starts, begin), 0).sum())


def _split(times: Floats) -> StepTimes:
    """Separates outliers: at most one in twenty times, far above the median."""
    if len(times) < 8:
        return StepTimes(times, np.zeros(0))
    lower, median, upper = np.quantile(times, [0.25, 0.5, 0.75])
    far = times > median + _OUTLIER * max(upper - lower, 0.05 * median)
    if far.mean() > 0.05:
        return StepTimes(times, np.zeros(0))
    return StepTimes(times[~far], times[far])


def _amount(recorded: RecordedLoader) -> Iterator[Finding]:
    """Batch size, epochs and steps."""
    loader = recorded.loader
    epochs = recorded.fetches.groupby("offset").size()
    if loader.batch_size is not None:
        yield Finding("train.batch_size", loader.batch_size, f"the loader has batch_size={loader.batch_size}")
    yield Finding("train.epochs", len(epochs), f"the loader was iterated {counted(len(epochs), 'time')}")
    if not all(epoch.exhausted for epoch in recorded.epochs):
        steps = int(epochs.max())
        yield Finding("train.steps", steps, f"{steps} batches were fetched in an iteration that did not reach its end")


def _compute(times: StepTimes) -> Iterator[Finding]:
    """Distribution of step times."""
    if not len(times.usual):
        return
    mean, stdev = float(times.usual.mean()), float(times.usual.std())
    count = counted(len(times.usual), "time")
    yield Finding("compute.mode", "sleep", "what the program computes is not recorded; its time passes", "assumed")
    yield Finding("compute.step_s", round(mean, 6), f"mean of {count} between two fetches")
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
    if len(times.outliers):
        longest = format_duration(float(times.outliers.max()))
        yield (
            f"{counted(len(times.outliers), 'step')} of {len(times.usual) + len(times.outliers)} took far longer than "
            f"the others (up to {longest}) and are not emulated"
        )
