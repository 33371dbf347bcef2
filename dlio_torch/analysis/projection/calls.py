"""Opens and reads of the batches of a run, from its spans and, where they were recorded, its calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dlio_torch.analysis.makers import Floats
from dlio_torch.config.schema import Config
from dlio_torch.trace.calls import CLASSES, READ, class_codes
from dlio_torch.trace.recording import Recording

_THREAD = ["rank", "pid", "tid"]


@dataclass(frozen=True)
class Calls:
    """Means over all makers.

    Attributes:
        opens: files that a batch opens, without a maker's first batch.
        first_opens: files that it opens in its first one.
        files_of_maker: different files that a maker opened.
        files: different files that all of them opened.
        header_requests: read calls of the opening of a file; None: not recorded.
        requests: read calls of a batch, without those of opening; None: not recorded.
        bytes: that they moved; None: not recorded.
    """

    opens: float
    first_opens: float
    files_of_maker: float
    files: int
    header_requests: float | None
    requests: float | None
    bytes: float | None


def calls_of(recording: Recording, config: Config) -> Calls:
    """What the makers of a run opened and read.

    Args:
        recording: the events of the run.
        config: its resolved configuration.
    """
    spans = recording.spans
    batches, opens = (spans[(spans["op"] == name).to_numpy()] for name in ("batch", "open"))
    reads = recording.io
    reads = reads[(class_codes(reads) == CLASSES.index(READ))] if len(reads) else reads
    makers = []
    for _, own in batches.groupby(_THREAD, sort=True):
        makers.append(_of_maker(own, _of_thread(opens, own), _of_thread(reads, own)))
    if not makers:
        return Calls(0.0, 0.0, 0.0, 0, None, None, None)
    count = np.array([one["batches"] for one in makers])
    total = {name: float(sum(one[name] for one in makers)) for name in makers[0]}
    later, opened, recorded = float((count - 1).sum()), total["opens"], config.trace.posix and len(reads) > 0
    return Calls(
        opens=(opened - total["first"]) / later if later else 0.0,
        first_opens=total["first"] / len(makers),
        files_of_maker=total["files"] / len(makers),
        files=int(opens["file"].nunique()),
        header_requests=total["header"] / opened if recorded and opened else None,
        requests=(total["reads"] - total["header"]) / total["batches"] if recorded else None,
        bytes=(total["bytes"] - total["header_bytes"]) / total["batches"] if recorded else None,
    )


def _of_thread(frame: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    """The rows of the thread that made these batches."""
    same = np.ones(len(frame), bool)
    for name in _THREAD:
        same &= frame[name].to_numpy() == batches[name].iloc[0]
    found: pd.DataFrame = frame[same]
    return found


def _of_maker(batches: pd.DataFrame, opens: pd.DataFrame, reads: pd.DataFrame) -> dict[str, float]:
    begins = _sorted(batches, "start_ns")
    opened = _sorted(opens, "start_ns")
    at, size = reads["start_ns"].to_numpy(float), reads["bytes"].to_numpy(float)
    inside = _within(at, begins, _sorted(batches, "end_ns"))
    header = _within(at, opened, _sorted(opens, "end_ns")) & inside
    moved = np.maximum(size, 0)
    second = begins[1] if begins.size > 1 else np.inf
    return {
        "batches": begins.size,
        "opens": opened.size,
        "first": int((opened < second).sum()),
        "files": opens["file"].nunique(),
        "reads": int(inside.sum()),
        "bytes": float(moved[inside].sum()),
        "header": int(header.sum()),
        "header_bytes": float(moved[header].sum()),
    }


def _sorted(frame: pd.DataFrame, name: str) -> Floats:
    values: Floats = np.sort(frame[name].to_numpy(float))
    return values


def _within(at: Floats, start: Floats, end: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each time lies in one of the intervals, which do not overlap."""
    if not start.size:
        return np.zeros(at.size, bool)
    place = np.searchsorted(start, at, side="right") - 1
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (place >= 0) & (at < end[np.maximum(place, 0)])
    return found
