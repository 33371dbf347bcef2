"""Time of preprocessing: what a recorded program spends on a sample beside its I/O, and what an emulation spends.

The emulation decodes and converts samples, too, as far as its format says.  The difference is the preprocessing that
the recipe has to add.  A batch is timed as a whole, by the process that reads it, so that the time of a sample
includes its share of collating.

On a busy machine processes wait for a core.  That is no preprocessing, and is subtracted where it is recorded.  If
times scatter widely all the same, the lower quartile stands for them instead of the median, for program and emulation
alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import PreconditionError
from dlio_torch.fit.batch_amounts import batch_size
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.fit.run_delays import delays_outside_calls, run_delays
from dlio_torch.fit.score import run_recipe
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.intervals import covered, union
from dlio_torch.units import counted, format_duration

Floats = npt.NDArray[np.float64]

_LEAST_BATCHES = 4
_LEAST_SHARE = 0.05
"""Smaller differences, relative to the program's time, are left out."""
_QUARTILE = 0.25
_SCATTER = 1.5
"""Median, relative to the lower quartile, above which the lower quartile stands for all times."""
_MOST_STEPS = 64  # of the run that measures the emulation


@dataclass(frozen=True)
class SampleTimes:
    """Seconds of a sample beside its I/O.

    Attributes:
        batches: time of a sample in each batch, float64 of ``(n,)``, ascending.
    """

    batches: Floats

    @property
    def level(self) -> float:
        """Quantile that stands for all: the median, or the lower quartile of times that scatter widely."""
        lower, median = np.quantile(self.batches, [_QUARTILE, 0.5])
        return _QUARTILE if median > _SCATTER * lower else 0.5

    def quantile(self, level: float) -> float:
        """A quantile."""
        return float(np.quantile(self.batches, level))

    def error(self, level: float) -> float:
        """Standard error of a quantile, from the order of the times alone."""
        spread = np.sqrt(level * (1 - level) / len(self.batches))
        lower, upper = np.quantile(self.batches, [max(0.0, level - spread), min(1.0, level + spread)])
        return float(upper - lower) / 2


def with_preprocessing(
    training: RecordedTraining, fitted: FittedTraining, folder: ResultFolder, announce: Callable[[str], None]
) -> FittedTraining:
    """The values of a recipe with ``compute.preprocess_s``, which a short run of the recipe shows.

    Args:
        training: the recording.
        fitted: values without preprocessing, as the recipe of ``folder`` has them.
        folder: the result.
        announce: called with one line before the recipe is run.
    """
    recorded = training.training
    if recorded is None or len(_program_batches(training, recorded)) < _LEAST_BATCHES:
        return fitted
    announce("running an epoch of the recipe to measure its preprocessing")
    try:
        run = open_recording(run_recipe(folder, fitted.ranks, *_short(recorded)))
    except PreconditionError as error:
        gap = f"the time of preprocessing: the emulation's share was not measured ({error})"
        return replace(fitted, findings=fitted.findings + Findings(gaps=(gap,)))
    return replace(fitted, findings=fitted.findings + preprocessing(training, run))


def preprocessing(training: RecordedTraining, emulation: Recording) -> Findings:
    """Option ``compute.preprocess_s``, or a gap if the emulation takes longer than the program.

    Args:
        training: the recording.
        emulation: run of its recipe without preprocessing.
    """
    recorded = training.training
    if recorded is None:
        return Findings()
    size, *_ = batch_size(training, recorded)
    program = sample_times(training.recording, _program_batches(training, recorded), size)
    emulated = sample_times(emulation, _emulated_batches(emulation, recorded.loader.num_workers), size)
    return Findings() if program is None or emulated is None else _difference(program, emulated)


def sample_times(recording: Recording, batches: pd.DataFrame, size: int) -> SampleTimes | None:
    """Times of samples beside their I/O.

    Args:
        recording: with I/O calls.
        batches: spans of whole batches.
        size: samples of a batch.

    Returns:
        ``None``: there are too few batches.
    """
    if len(batches) < _LEAST_BATCHES:
        return None
    processes = batches.groupby(["rank", "pid"])
    times = np.concatenate([_beside_io(recording, group) for _, group in processes])
    return SampleTimes(np.sort(np.maximum(times, 0)) / 1e9 / size)


def _beside_io(recording: Recording, spans: pd.DataFrame) -> Floats:
    """Nanoseconds of spans of one process in which it had no I/O call and did not wait for a core."""
    calls, rank, pid = recording.io, spans["rank"].iloc[0], spans["pid"].iloc[0]
    mine = calls[(calls["rank"] == rank) & (calls["pid"] == pid)]
    starts, ends = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    busy = union(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
    outside = ends - starts - covered(busy, starts, ends)
    delays = run_delays(recording.spans, spans)
    return np.asarray(outside - delays_outside_calls(delays, mine, spans, outside), np.float64)


def _difference(program: SampleTimes, emulated: SampleTimes) -> Findings:
    """The time that the emulation has to add, if that is more than the noise of both."""
    level = program.level
    theirs, ours = program.quantile(level), emulated.quantile(level)
    noise = 2 * float(np.hypot(program.error(level), emulated.error(level)))
    if abs(theirs - ours) <= max(noise, _LEAST_SHARE * theirs):
        return Findings()
    texts = (format_duration(theirs), format_duration(ours))
    if theirs < ours:
        return Findings(gaps=(f"a sample takes {texts[0]} beside its I/O, but {texts[1]} in the emulation",))
    kind = "median" if level == 0.5 else "lower quartile"
    evidence = (
        f"{kind} of {counted(len(program.batches), 'batch', 'batches')}: a sample takes {texts[0]} beside its I/O, "
        f"with its share of collating; the emulation alone takes {texts[1]}"
    )
    return findings([Finding("compute.preprocess_s", float(f"{theirs - ours:.3g}"), evidence, "likely")])


def _program_batches(training: RecordedTraining, recorded: RecordedLoader) -> pd.DataFrame:
    """Spans of batches of training: of its workers, or without workers its fetches."""
    if not recorded.loader.num_workers:
        return recorded.fetches
    spans, loader = training.recording.spans, recorded.loader
    workers = {
        (process.rank, process.pid)
        for process in training.torch.processes
        if process.loader == loader.id and (process.rank != loader.rank or process.parent_pid == loader.pid)
    }
    batches = spans[spans["op"] == "batch"]
    mine = [place in workers for place in zip(batches["rank"], batches["pid"], strict=True)]
    return batches[mine] if any(mine) else batches


def _emulated_batches(emulation: Recording, workers: int) -> pd.DataFrame:
    spans = emulation.spans
    return spans[spans["op"] == ("batch" if workers else "fetch")]


def _short(recorded: RecordedLoader) -> list[str]:
    """Settings of a run of one epoch, of few steps, without evaluation and checkpoints."""
    longest = int(recorded.fetches.groupby("offset").size().max())
    steps = [f"train.steps={_MOST_STEPS}"] if longest > _MOST_STEPS else []
    return ["train.epochs=1", "train.eval_every_epochs=0", "train.eval_every_steps=0", "checkpoint=none", *steps]
