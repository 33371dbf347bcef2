"""Files that a recorded trainer wrote between its steps without torch: checkpoints by NumPy or plain writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from dlio_torch.fit.checkpoint_writes import CheckpointWrites, writes_of_path
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, WRITE, class_codes

_LEAST_BYTES = 65_536
"""Files with less are logs and notes, no checkpoints."""


def written_checkpoints(training: RecordedTraining, data: DataFit) -> list[list[CheckpointWrites]]:
    """Files that the first rank's trainer wrote, those between two fetches together; none before the first fetch.

    A file that is written in the course of several steps, such as a log, is left out.
    """
    recorded = training.training
    assert recorded is not None
    writes = _writes(training, recorded.loader.pid, set(data.files))
    starts = np.sort(recorded.fetches["start_ns"].to_numpy())
    groups: dict[int, list[CheckpointWrites]] = {}
    for path, calls in writes.groupby("file", observed=True, sort=False):
        for place, begin, end in _steps_with_writes(calls, starts):
            file = writes_of_path(training.calls, str(path), begin, end)
            if file.bytes >= _LEAST_BYTES:
                groups.setdefault(place, []).append(file)
    return [groups[place] for place in sorted(groups)]


def _writes(training: RecordedTraining, pid: int, data: set[str]) -> pd.DataFrame:
    calls = training.calls
    chosen = (class_codes(calls) == CLASSES.index(WRITE)) & (calls["pid"] == pid) & ~calls["file"].isin(data)
    chosen &= calls["file"].map(_is_regular).astype(bool) & (calls["start_ns"] >= training.begin_ns)
    result: pd.DataFrame = calls[chosen]
    return result


def _is_regular(name: object) -> bool:
    path = Path(str(name))
    return path.is_absolute() and path.parts[1:2] not in (("dev",), ("proc",), ("sys",))


def _steps_with_writes(
    calls: pd.DataFrame, fetches: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Iterator[tuple[int, int, int | None]]:
    """Per step after which a file was written: its number, the first write, and the first write after a later step."""
    begins = calls["start_ns"].to_numpy()
    steps = np.searchsorted(fetches, begins, side="right")
    numbers, first = np.unique(steps, return_index=True)
    for number, position in enumerate(first.tolist()):
        following = int(begins[first[number + 1]]) if number + 1 < len(first) else None
        yield int(numbers[number]), int(begins[position]), following
