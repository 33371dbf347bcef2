"""Files of a recorded training's data set, told apart from those of evaluation and from all others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.formats.core.inspection import Inspection, inspect_path
from dlio_torch.formats.core.registry import format_class

_EVALUATION_WORDS = {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev"}
_WORD = re.compile(r"[A-Za-z]+")


def training_files(training: RecordedTraining) -> list[str]:
    """Paths of the files that were read for samples of training, and not for those of evaluation alone.

    Without samples in the recording, names decide: words such as ``val`` are those of evaluation.
    """
    read = _files_read_by(training, training.training)
    if read:
        return read
    others = set(_files_read_by(training, training.evaluation))
    files = [name for name in training.data_files if name not in others]
    if training.evaluation is not None:
        files = [name for name in files if not _is_for_evaluation(name)] or files
    return files


def evaluation_files(training: RecordedTraining, of_training: Iterable[str]) -> list[str]:
    """Paths of the files that were read for evaluation alone."""
    if training.evaluation is None:
        return []
    read = _files_read_by(training, training.evaluation)
    named = [name for name in training.data_files if _is_for_evaluation(name)]
    return sorted(set(read or named) - set(of_training))


def inspected(files: Sequence[str]) -> Inspection:
    """Inspection of recorded files: of their folder if it is one data set, or else of the first of the largest kind.

    Raises:
        DataError: they are gone, or of no known format.
    """
    present = [name for name in files if Path(name).exists()]
    if not present:
        raise DataError(
            f"none of the {len(files)} recorded data files exists any more", hint="run fit where the data are"
        )
    kind = _largest_kind(present)
    if len(present) > 1:
        folder = inspect_path(os.path.commonpath(present))
        if folder.described.is_dir() or folder.described.suffix == kind:
            return folder
    return inspect_path(next(name for name in present if Path(name).suffix == kind))


def files_of(inspection: Inspection, recorded: Sequence[str], others: Iterable[str]) -> list[Path]:
    """Files of the data set, sorted: those recorded, and those beside them that the recording did not reach.

    Args:
        inspection: of the data set.
        recorded: files that were read for training.
        others: files of evaluation.
    """
    if format_class(inspection.format).in_folders:
        return [inspection.described]
    suffix = inspection.described.suffix if inspection.described.is_file() else _largest_kind(recorded)
    left_out = set(others)
    folders = {Path(name).parent for name in recorded if Path(name).suffix == suffix}
    files = {path for folder in folders for path in folder.glob(f"*{suffix}") if path.is_file()}
    return sorted(path for path in files if str(path) not in left_out)


def _files_read_by(training: RecordedTraining, recorded: RecordedLoader | None) -> list[str]:
    """Data files on which there are calls for samples of a loader's data set."""
    if recorded is None or recorded.dataset is None:
        return []
    calls = training.calls
    mine = calls[(calls["dataset"] == recorded.dataset.id) & calls["file"].isin(training.data_files)]
    return sorted(str(name) for name in mine["file"].unique())


def _is_for_evaluation(name: str) -> bool:
    return bool(_EVALUATION_WORDS & {word.lower() for part in Path(name).parts[-3:] for word in _WORD.findall(part)})


def _largest_kind(files: Sequence[str]) -> str:
    """Suffix of the files that together have the most bytes."""
    sizes: dict[str, int] = {}
    for name in files:
        path = Path(name)
        sizes[path.suffix] = sizes.get(path.suffix, 0) + (path.stat().st_size if path.is_file() else 0)
    return max(sizes, key=lambda suffix: sizes[suffix])
