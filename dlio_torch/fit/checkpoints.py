"""The checkpoints of a recorded training: layout, content, interval, and which of them are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dlio_torch.fit.checkpoint_content import content_of_state, content_of_writes
from dlio_torch.fit.checkpoint_writes import CheckpointWrites, kept, replaced, writes_of_saves
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.fit.save_points import SavePoint, interval, save_points
from dlio_torch.fit.written_files import written_checkpoints
from dlio_torch.iotrace.events.torch_calls import SavedState
from dlio_torch.units import counted

_DCP = "dcp."


def fit_checkpoints(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``checkpoint``."""
    if training.training is None:
        return Findings()
    saves = _saves(training)
    loads = _loads(training, data)
    if saves:
        result = _by_torch(training, saves)
    elif loads:
        result = content_of_state(training, loads)
    else:
        result = _by_writes(training, data)
    return result + _restored(training, loads, result)


def _saves(training: RecordedTraining) -> list[SavedState]:
    """Saves of the first rank with a known place."""
    states = [state for state in training.torch.saves if state.kind == "save" and state.path is not None]
    first = min((state.rank for state in states), default=0)
    return [state for state in states if state.rank == first]


def _loads(training: RecordedTraining, data: DataFit) -> list[SavedState]:
    """Loads of the trainer before its first batch; files of the data set are no checkpoints."""
    assert training.training is not None
    pid, files = training.training.loader.pid, set(data.files)
    return [
        state
        for state in training.torch.saves
        if state.kind == "load" and state.pid == pid and state.path and state.path not in files
        if state.start_ns < training.begin_ns
    ]


def _by_torch(training: RecordedTraining, saves: Sequence[SavedState]) -> Findings:
    """Checkpoints by ``torch.save`` or ``torch.distributed.checkpoint``."""
    points = save_points(training, [state.start_ns for state in saves])
    files = writes_of_saves(training, saves)
    most = max(len(group) for group in _groups(saves, points))
    if most > 1 and not saves[0].call.startswith(_DCP):
        content = content_of_writes([files[i] for i in _positions(points)], "saved by several calls", replaced(files))
    else:
        content = content_of_state(training, saves)
    values = [*interval(training, points), *_ranks(training, saves), *_flushed(saves[0], files)]
    values += _names(content.value("checkpoint.layout"), saves, files)
    is_folder_again = saves[0].call.startswith(_DCP) and replaced(files)
    gaps = [f"checkpoints replace {files[0].path}; in the emulation each has a folder of its own"]
    paths = [str(state.path) for state in saves]
    firsts = {point.steps: file for point, file in zip(reversed(points), reversed(files), strict=True)}
    of_each = [firsts[steps] for steps in sorted(firsts)]
    return content + findings(values, gaps if is_folder_again else (), paths) + kept(of_each)


def _groups(saves: Sequence[SavedState], points: Sequence[SavePoint]) -> list[list[SavedState]]:
    """Saves after the same step."""
    steps = [point.steps for point in points]
    return [[save for save, step in zip(saves, steps, strict=True) if step == wanted] for wanted in sorted(set(steps))]


def _positions(points: Sequence[SavePoint]) -> list[int]:
    """Numbers of the saves of the first checkpoint."""
    return [number for number, point in enumerate(points) if point.steps == points[0].steps]


def _ranks(training: RecordedTraining, saves: Sequence[SavedState]) -> Iterator[Finding]:
    if training.world_size == 1 or saves[0].call.startswith(_DCP):
        return
    ranks = {state.rank for state in training.torch.saves if state.kind == "save"}
    which = "all" if len(ranks) > 1 else "first"
    yield Finding("checkpoint.ranks", which, f"{counted(len(ranks), 'rank')} of {training.world_size} saved")


def _flushed(save: SavedState, files: Sequence[CheckpointWrites]) -> Iterator[Finding]:
    share = float(np.mean([file.flushed for file in files]))
    key = "checkpoint.sync_files" if save.call.startswith(_DCP) else "checkpoint.fsync"
    yield Finding(key, share >= 0.5, f"{share:.0%} of {counted(len(files), 'save')} flushed a file (fsync)")


def _names(layout: str, saves: Sequence[SavedState], files: Sequence[CheckpointWrites]) -> Iterator[Finding]:
    """Whether files get their names when they are complete."""
    if saves[0].call.startswith(_DCP):
        return
    renamed = sum(file.renamed for file in files)
    evidence = f"{renamed} of {counted(len(files), 'file')} were renamed after the save"
    yield Finding("checkpoint.rename", renamed * 2 >= len(files), evidence)
    if layout == "torch_save" and replaced(files):
        yield Finding("checkpoint.file_name", "checkpoint.pt", f"each save replaces {Path(files[0].path).name}")


def _by_writes(training: RecordedTraining, data: DataFit) -> Findings:
    """Checkpoints without torch: files that the trainer wrote between its steps."""
    groups = written_checkpoints(training, data)
    if not groups:
        return Findings()
    points = save_points(training, [group[0].start_ns for group in groups])
    files = [file for group in groups for file in group]
    content = content_of_writes(groups[0], "they are written without torch.save", replaced(files))
    flushed = sum(file.flushed for file in files)
    rename = sum(file.renamed for file in files)
    amount = counted(len(files), "file")
    values = [
        *interval(training, points),
        Finding("checkpoint.fsync", flushed * 2 >= len(files), f"{flushed} of {amount} were flushed (fsync)"),
        Finding("checkpoint.rename", rename * 2 >= len(files), f"{rename} of {amount} were renamed"),
    ]
    return content + findings(values, (), [file.path for file in files]) + kept([group[0] for group in groups])


def _restored(training: RecordedTraining, loads: Sequence[SavedState], content: Findings) -> Findings:
    """A restore before the first step; its files are read."""
    if not loads or not content.values:
        return Findings()
    names = [Path(str(state.path)).name for state in loads]
    evidence = f"{loads[0].call} read {names[0]} before the first batch"
    return findings([Finding("checkpoint.restore", True, evidence)], (), [str(state.path) for state in loads])
