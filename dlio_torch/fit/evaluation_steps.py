"""The evaluation of a recorded training: its data, how often, how many steps, and their time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.save_points import SavePoint, multiples, save_points
from dlio_torch.fit.step_times import computed
from dlio_torch.units import counted


def fit_evaluation(training: RecordedTraining, data: DataFit) -> Findings:
    """Options ``train.eval_*``, ``compute.eval_step_s`` and those of evaluation files."""
    recorded = training.evaluation
    if recorded is None or training.training is None:
        return Findings()
    files = _files(training, recorded)
    starts = [epoch.start_ns for epoch in recorded.epochs]
    points = save_points(training, starts)
    shared = set(files) & set(data.files)
    values = [
        *_interval(points),
        *_steps(recorded, training.training),
        *_compute(training, recorded),
        *_amounts(recorded, data, files),
    ]
    gaps = [*_gaps(training, recorded, points)]
    if shared:
        gaps.append(
            f"evaluation reads {counted(len(shared), 'file')} of the training; in the emulation it has files of its own"
        )
    return findings(values, gaps, files)


def _files(training: RecordedTraining, recorded: RecordedLoader) -> list[str]:
    """Paths of the files that are read for samples of evaluation."""
    if recorded.dataset is None:
        return []
    calls = training.calls
    mine = calls[(calls["dataset"] == recorded.dataset.id) & calls["file"].isin(training.data_files)]
    return sorted(str(name) for name in mine["file"].unique())


def _interval(points: list[SavePoint]) -> Iterator[Finding]:
    """How often is evaluated: after epochs, or after a number of steps."""
    later = [point for point in points if point.steps]
    epochs = multiples(sorted({point.epochs for point in later}))
    if later and all(point.after_epoch for point in later) and epochs:
        evidence = f"evaluated {counted(len(later), 'time')}, each time after the last batch of an epoch"
        yield Finding("train.eval_every_epochs", epochs, evidence)
        return
    steps = sorted({point.steps for point in later})
    listed = ", ".join(map(str, steps[:4]))
    if every := multiples(steps):
        yield Finding("train.eval_every_steps", every, f"evaluated after {listed} steps")
    elif steps:
        mean = max(1, round(steps[-1] / len(steps)))
        evidence = f"mean interval: evaluated after {listed} steps, at no regular interval"
        yield Finding("train.eval_every_steps", mean, evidence, "assumed")


def _steps(recorded: RecordedLoader, training: RecordedLoader) -> Iterator[Finding]:
    """Steps and batch of an evaluation."""
    batches = recorded.fetches.groupby("offset").size()
    if not all(epoch.exhausted for epoch in recorded.epochs):
        evidence = f"an evaluation fetched {int(batches.max())} batches, and did not reach the end of its loader"
        yield Finding("train.eval_steps", int(batches.max()), evidence)
    size = recorded.loader.batch_size
    if size is not None and size != training.loader.batch_size:
        yield Finding("train.eval_batch_size", size, f"the loader of the evaluation has batch_size={size}")


def _compute(training: RecordedTraining, recorded: RecordedLoader) -> Iterator[Finding]:
    seconds = computed(training, recorded)
    if len(seconds):
        evidence = f"median of {counted(len(seconds), 'time')} between two fetches of the evaluation"
        yield Finding("compute.eval_step_s", round(float(np.median(seconds)), 6), evidence)


def _amounts(recorded: RecordedLoader, data: DataFit, files: list[str]) -> Iterator[Finding]:
    """Files and samples of the evaluation, as many to a file as in training."""
    length = recorded.dataset.length if recorded.dataset is not None else None
    samples = length or len(files)
    if not samples:
        return
    per_file = min(int(data.findings.value("dataset.samples_per_file", 1)), samples)
    evidence = f"the data set of the evaluation has {counted(samples, 'sample')} in {counted(len(files), 'file')}"
    yield Finding("dataset.num_files_eval", max(1, round(samples / per_file)), evidence)
    yield Finding("dataset.samples_per_file_eval", per_file, evidence)


def _gaps(training: RecordedTraining, recorded: RecordedLoader, points: list[SavePoint]) -> Iterator[str]:
    if any(point.steps == 0 for point in points):
        yield "an evaluation before the first step"
    assert training.training is not None
    workers = (recorded.loader.num_workers, training.training.loader.num_workers)
    if workers[0] != workers[1]:
        yield f"the loader of the evaluation has {workers[0]} workers; in the emulation it has {workers[1]}"
    if recorded.loader.drop_last != training.training.loader.drop_last:
        drops = recorded.loader.drop_last
        yield f"the loader of the evaluation has drop_last={drops}; the emulation has one access.tail for both loaders"
