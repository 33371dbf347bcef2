"""Files of recorded checkpoints: their bytes, requests, flushes, renames and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, WRITE, class_codes
from dlio_torch.iotrace.events.torch_calls import SavedState
from dlio_torch.iotrace.figures.call_selection import within
from dlio_torch.units import counted


@dataclass(frozen=True)
class CheckpointWrites:
    """A saved file, or the folder of a save.

    Attributes:
        path: as the program named it.
        start_ns: begin of the save, or of the first call.
        bytes: bytes that were written.
        write_bytes: size of most of its large writes.
        flushed: whether it, or a file in it, was flushed.
        renamed: whether the file got another name later.
        deleted_ns: when it, or the first file in it, was deleted; None if it was not.
        pids: processes that wrote.
    """

    path: str
    start_ns: int
    bytes: int
    write_bytes: int
    flushed: bool
    renamed: bool
    deleted_ns: int | None
    pids: frozenset[int]


def writes_of_saves(training: RecordedTraining, saves: Sequence[SavedState]) -> list[CheckpointWrites]:
    """Writes of each save: calls on its path until the next save of the same path."""
    result = []
    for number, save in enumerate(saves):
        later = [other.start_ns for other in saves[number + 1 :] if other.path == save.path]
        result.append(writes_of_path(training.calls, str(save.path), save.start_ns, min(later, default=None)))
    return result


def writes_of_path(calls: pd.DataFrame, path: str, begin_ns: int, end_ns: int | None = None) -> CheckpointWrites:
    """Writes of a file or folder.

    Args:
        calls: of the recording.
        path: of the file or folder.
        begin_ns: begin of the save.
        end_ns: calls from here on do not count; None: all count.
    """
    mine = calls[within(calls, [path])]
    mine = mine[(mine["start_ns"] >= begin_ns) & (end_ns is None or mine["start_ns"] < end_ns)]
    writes = mine[class_codes(mine) == CLASSES.index(WRITE)]
    sizes = np.maximum(writes["bytes"].to_numpy(np.int64), 0)
    ops = mine["op"].astype(str)
    unlinks = mine[ops.isin(("unlink", "unlinkat", "rmdir"))]
    return CheckpointWrites(
        path,
        begin_ns,
        int(sizes.sum()),
        int(np.median(sizes[sizes >= sizes.max() / 2])) if len(sizes) else 0,
        bool(ops.isin(("fsync", "fdatasync")).any()),
        bool((ops.str.startswith("rename") & (mine["file"].astype(str) == path)).any()),
        int(unlinks["start_ns"].min()) if len(unlinks) else None,
        frozenset(int(pid) for pid in writes["pid"].unique()),
    )


def kept(files: Sequence[CheckpointWrites]) -> Findings:
    """Number of checkpoints that are kept, by what is deleted.

    Args:
        files: of each checkpoint one, in the order of the saves.
    """
    if replaced(files):
        return findings([Finding("checkpoint.keep", 1, "each checkpoint replaces the one before")])
    deleted = [file.deleted_ns for file in files if file.deleted_ns is not None]
    if not deleted:
        return findings([Finding("checkpoint.keep", 0, f"none of {counted(len(files), 'checkpoint')} is deleted")])
    evidence = f"{len(deleted)} of {counted(len(files), 'checkpoint')} are deleted"
    return findings([Finding("checkpoint.keep", max(_numbers_after_deletions(files)), evidence)])


def replaced(files: Sequence[CheckpointWrites]) -> frozenset[str]:
    """Paths that several checkpoints have written, each replacing the file of the one before."""
    paths = [file.path for file in files]
    return frozenset(path for path in paths if paths.count(path) > 1)


def _numbers_after_deletions(files: Sequence[CheckpointWrites]) -> Iterator[int]:
    """Number of checkpoints that exist after each deletion."""
    for time in (file.deleted_ns for file in files if file.deleted_ns is not None):
        saved = sum(file.start_ns <= time for file in files)
        yield max(1, saved - sum(file.deleted_ns is not None and file.deleted_ns <= time for file in files))
