"""The data set of a recorded training: its format, files and samples.

The files themselves say most of it, if they are still there: ``inspect`` recognises the format, and the format says
with which options it generates files like these (:attr:`~dlio_torch.formats.core.facts.FormatFacts.recreate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.fit.finding import Confidence, Finding, Findings, findings
from dlio_torch.fit.recorded_files import evaluation_files, files_of, inspected, training_files
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.replayed_data import fit_replayed_data
from dlio_torch.fit.sample_reads import SampleReads
from dlio_torch.formats.core.inspection import Inspection
from dlio_torch.formats.core.recorded_samples import RecordedSamples
from dlio_torch.formats.core.recreation import ObservedArray, ObservedReads, Recreation, recreation
from dlio_torch.formats.core.registry import facts
from dlio_torch.units import counted

_UNEQUAL = 0.05  # spread of the sizes of files, relative to their mean, from which on it is said


@dataclass(frozen=True)
class DataFit:
    """The data set of a recipe, and what its format explains.

    Attributes:
        findings: options of the group ``dataset``, and the files that they reproduce.
        format: value of ``dataset.format``.
        files: paths of the recorded files of training, in the order of their samples.
        samples: number of samples in all of them.
        inspection: of the files; ``None``: they are gone, or no known format explains them.
        replayed: the recorded calls of the samples; ``None``: the format generates files like the recorded ones.
        reads: the readings of these samples; ``None`` likewise.
    """

    findings: Findings
    format: str
    files: tuple[str, ...]
    samples: int
    inspection: Inspection | None
    replayed: RecordedSamples | None = None
    reads: SampleReads | None = None


def fit_data(training: RecordedTraining) -> DataFit:
    """Finds the data set of a recorded training; without a format that explains it, the recorded calls.

    Raises:
        DataError: neither a known format nor the calls of samples explain the data.
    """
    try:
        return _known_format(training)
    except DataError as error:
        return _recorded_calls(training, error)


def _recorded_calls(training: RecordedTraining, reason: DataError) -> DataFit:
    """The recorded calls as a data set.

    Raises:
        DataError: ``reason``, why no known format explains them, if it is not known which calls read a sample either.
    """
    try:
        data = fit_replayed_data(training, reason.message)
    except DataError as error:
        raise reason from error
    files, samples = tuple(data.samples.file_bytes), len(data.samples.samples)
    return DataFit(data.findings, data.format, files, samples, None, data.samples, data.reads)


def _known_format(training: RecordedTraining) -> DataFit:
    """The data set by what its files state.

    Raises:
        DataError: its files are gone or of no known format, or it stays open how they are read.
    """
    recorded = training_files(training)
    others = evaluation_files(training, recorded)
    inspection = inspected(recorded)
    paths = files_of(inspection, recorded, others)
    recreated = recreation(inspection.format, inspection.description, _observed(training, recorded, paths))
    samples = _samples(training, inspection, paths)
    amounts = amounts_of(samples, recreated.files or len(paths), recreated.samples_per_file)
    name = recreated.format or inspection.format
    values = [*_values(inspection, recreated, name), *_amounts(samples, len(paths), amounts)]
    values += _of_evaluation(training, others, amounts[1], recreated)
    gaps = [*recreated.differences, *_unequal(paths)]
    result = findings(values, gaps, [*_reproduced(inspection, recreated, recorded, paths), *others])
    return DataFit(result, name, tuple(map(str, paths)), samples, inspection)


def _observed(training: RecordedTraining, recorded: Sequence[str], paths: Sequence[Path]) -> ObservedReads:
    """The reads of the program on the files, and the samples that it made of them."""
    names = {*recorded, *map(str, paths)}
    calls = training.calls[training.calls["file"].isin(names)]
    loader = training.training
    if loader is None:
        return ObservedReads(tuple(paths), calls)
    length = loader.dataset.length if loader.dataset is not None else None
    return ObservedReads(tuple(paths), calls, length, tuple(_arrays(training, loader)))


def _arrays(training: RecordedTraining, recorded: RecordedLoader) -> Iterator[ObservedArray]:
    """Arrays of a sample: those of the first batch, without the axis of the batch."""
    loader = recorded.loader
    batches = (entry for entry in training.torch.arrays if (entry.pid, entry.loader) == (loader.pid, loader.id))
    first = next(batches, None)
    # Without a batch size the program makes its batches itself: their axis is the one that all arrays share.
    entries = () if first is None else first.arrays
    is_batch = loader.batch_sampler is not None or loader.batch_size is not None
    heads = {array.shape[:1] for array in entries}
    axes = 1 if is_batch or (len(heads) == 1 and () not in heads and len(entries) > 1) else 0
    for array in entries:
        yield ObservedArray(array.path, array.shape[axes:], array.dtype)


def _samples(training: RecordedTraining, inspection: Inspection, paths: Sequence[Path]) -> int:
    """Number of samples of training."""
    recorded = training.training
    if recorded is not None and recorded.dataset is not None and recorded.dataset.length is not None:
        return recorded.dataset.length
    described = 1 if inspection.described.is_dir() else len(paths)
    return (inspection.description.samples or 1) * described


def amounts_of(samples: int, files: int, per_file: int | None) -> tuple[int, int]:
    """Number of files and of samples in each of them.

    Args:
        samples: in all files.
        files: number of existing files.
        per_file: samples of each file, if it is known; else files of equally many samples, as near as possible both to
            the number of samples and to that of files.
    """
    if per_file is not None:
        return max(1, round(samples / per_file)), per_file
    nearest = max(1, samples // max(files, 1))
    candidates = [(max(1, round(samples / size)), size) for size in (nearest, nearest + 1)]
    candidates += [(files, size) for size in (nearest, nearest + 1)]
    return min(candidates, key=lambda pair: (_distance(pair, samples, files), pair[1]))


def _distance(pair: tuple[int, int], samples: int, files: int) -> float:
    """Largest relative difference from the number of samples and of files."""
    return max(abs(pair[0] * pair[1] - samples) / max(samples, 1), abs(pair[0] - files) / max(files, 1))


def _values(inspection: Inspection, recreated: Recreation, name: str) -> Iterator[Finding]:
    evidence = f"the files state it ({inspection.described.name})"
    observed = recreated.evidence

    def of(key: str, value: Any, option: str) -> Finding:
        confidence: Confidence = "likely" if option in observed else "certain"
        return Finding(key, value, observed.get(option, evidence), confidence)

    yield Finding("dataset.format", name, evidence)
    for option, value in recreated.dataset.items():
        yield of(f"dataset.{option}", value, option)
    if recreated.fields:
        yield of("dataset.fields", [_set_values(field) for field in recreated.fields], "fields")
    for option, value in recreated.options.items():
        yield of(f"dataset.{facts(name).option_group}.{option}", value, option)


def _amounts(samples: int, files: int, amounts: tuple[int, int]) -> Iterator[Finding]:
    evidence = f"{counted(files, 'file')} {'hold' if files > 1 else 'holds'} {counted(samples, 'sample')}"
    yield Finding("dataset.num_files", amounts[0], evidence)
    yield Finding("dataset.samples_per_file", amounts[1], evidence)


def _of_evaluation(
    training: RecordedTraining, others: Sequence[str], per_file: int, recreated: Recreation
) -> Iterator[Finding]:
    """Files that only the loader of evaluation read."""
    recorded = training.evaluation
    if not others or recorded is None:
        return
    length = recorded.dataset.length if recorded.dataset is not None else None
    samples = len(others) * per_file if length is None else length
    files, size = amounts_of(samples, len(others), recreated.samples_per_file)
    evidence = f"{counted(len(others), 'file')} with {counted(samples, 'sample')} read for evaluation alone"
    yield Finding("dataset.num_files_eval", files, evidence)
    yield Finding("dataset.samples_per_file_eval", size, evidence)


def _unequal(paths: Sequence[Path]) -> Iterator[str]:
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    if len(sizes) > 1 and np.std(sizes) > _UNEQUAL * np.mean(sizes):
        yield f"files have {min(sizes)} to {max(sizes)} bytes, generated ones all hold the same number of samples"


def _reproduced(
    inspection: Inspection, recreated: Recreation, recorded: Sequence[str], paths: Sequence[Path]
) -> set[str]:
    """Paths of the recorded files on which the recipe makes calls like the recorded ones."""
    if recreated.data_files:
        return set(map(str, recreated.data_files))
    inside = [name for name in recorded if inspection.described in Path(name).parents]
    return {*map(str, paths), *inside}


def _set_values(field: FieldConfig) -> dict[str, Any]:
    """Options of a field that differ from their defaults, and its name, type and shape."""
    plain = FieldConfig()
    always = ("name", "dtype", "shape")
    values = asdict(field)
    return {name: value for name, value in values.items() if name in always or value != getattr(plain, name)}
