"""The data set of a recorded training: its format, files and samples.

The files themselves say most of it, if they are still there: ``inspect`` recognises the format, and the format says
with which options it generates files like these (:attr:`~dlio_torch.formats.core.facts.FormatFacts.recreate`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.formats.core.inspection import Inspection, inspect_path
from dlio_torch.formats.core.recreation import ObservedArray, ObservedReads, Recreation, recreation
from dlio_torch.formats.core.registry import facts


@dataclass(frozen=True)
class DataFit:
    """The data set of a recipe, and what its format explains.

    Attributes:
        findings: options of the group ``dataset``, and the files that they reproduce.
        format: value of ``dataset.format``.
        files: paths of the recorded files of training, in the order of their samples.
        samples: number of samples in all of them.
        inspection: of the files; ``None``: they are gone.
    """

    findings: Findings
    format: str
    files: tuple[str, ...]
    samples: int
    inspection: Inspection | None


def fit_data(training: RecordedTraining) -> DataFit:
    """Finds the data set of a recorded training.

    Raises:
        DataError: its files are gone or of no known format.
    """
    files = _training_files(training)
    inspection = _inspected(training, files)
    paths = _files_of(inspection)
    recreated = recreation(inspection.format, inspection.description, _observed(training, paths))
    samples = _samples(training, inspection, paths)
    per_file = recreated.samples_per_file or max(1, round(samples / len(paths)))
    values = [*_values(inspection, recreated), *_amounts(training, paths, samples, per_file)]
    names = tuple(map(str, paths))
    result = findings(values, recreated.differences, names)
    return DataFit(result, inspection.format, names, samples, inspection)


def _training_files(training: RecordedTraining) -> list[str]:
    """Paths of the files that were read for samples of training, not of evaluation."""
    recorded = training.training
    if recorded is None or recorded.dataset is None:
        return training.data_files
    calls = training.calls
    mine = calls[(calls["dataset"] == recorded.dataset.id) & calls["file"].isin(training.data_files)]
    return sorted(str(name) for name in mine["file"].unique()) or training.data_files


def _inspected(training: RecordedTraining, files: Sequence[str]) -> Inspection:
    """Inspection of the recorded files: of the only file, or of the folder of all."""
    place = files[0] if len(files) == 1 else os.path.commonpath(files)
    return inspect_path(place)


def _observed(training: RecordedTraining, paths: Sequence[Path]) -> ObservedReads:
    """The reads of the program on the files, and the samples that it made of them."""
    calls = training.calls[training.calls["file"].isin([str(path) for path in paths])]
    recorded = training.training
    if recorded is None:
        return ObservedReads(tuple(paths), calls)
    length = recorded.dataset.length if recorded.dataset is not None else None
    loader = recorded.loader
    first = next(
        (entry for entry in training.torch.arrays if (entry.pid, entry.loader) == (loader.pid, loader.id)), None
    )
    axes = 1 if loader.batch_sampler is not None or loader.batch_size is not None else 0
    arrays = [ObservedArray(array.path, array.shape[axes:], array.dtype) for array in (first.arrays if first else ())]
    return ObservedReads(tuple(paths), calls, length, tuple(arrays))


def _files_of(inspection: Inspection) -> list[Path]:
    """Files of the data set, sorted."""
    if inspection.described.is_dir() or inspection.files == 1:
        return [inspection.described]
    return sorted(path for path in Path(inspection.path).rglob(f"*{inspection.described.suffix}") if path.is_file())


def _samples(training: RecordedTraining, inspection: Inspection, paths: Sequence[Path]) -> int:
    """Number of samples of training."""
    recorded = training.training
    if recorded is not None and recorded.dataset is not None and recorded.dataset.length is not None:
        return recorded.dataset.length
    return (inspection.description.samples or 1) * len(paths)


def _values(inspection: Inspection, recreated: Recreation) -> Iterator[Finding]:
    evidence = f"the files state it ({inspection.described.name})"
    observed = recreated.evidence
    yield Finding("dataset.format", inspection.format, evidence)
    for name, value in recreated.dataset.items():
        yield Finding(f"dataset.{name}", value, observed.get(name, evidence))
    if recreated.fields:
        yield Finding("dataset.fields", [_set_values(field) for field in recreated.fields], evidence)
    for name, value in recreated.options.items():
        key = f"dataset.{facts(inspection.format).option_group}.{name}"
        yield Finding(key, value, observed.get(name, evidence), "likely" if name in observed else "certain")


def _amounts(training: RecordedTraining, paths: Sequence[Path], samples: int, per_file: int) -> Iterator[Finding]:
    yield Finding("dataset.num_files", max(1, round(samples / per_file)), f"{len(paths)} files hold {samples} samples")
    yield Finding("dataset.samples_per_file", per_file, f"{len(paths)} files hold {samples} samples")


def _set_values(field: FieldConfig) -> dict[str, Any]:
    """Options of a field that differ from their defaults, and its name, type and shape."""
    plain = FieldConfig()
    always = ("name", "dtype", "shape")
    values = asdict(field)
    return {name: value for name, value in values.items() if name in always or value != getattr(plain, name)}
