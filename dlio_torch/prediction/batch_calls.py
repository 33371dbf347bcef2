"""Counts the opens and reads of a run's batches, from its spans and its recorded calls, if any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dlio_torch.analysis.producers import Floats
from dlio_torch.config.schema import Config
from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes
from dlio_torch.iotrace.events.recording import Recording

_THREAD = ["rank", "pid", "tid"]


@dataclass(frozen=True)
class Calls:
    """Mean numbers of opens and reads over all producers.

    Attributes:
        opens: files that a batch opens, without a producer's first batch.
        first_opens: files that it opens in its first one.
        files_of_maker: different files that a producer opened.
        files: different files that all of them opened.
        header_requests: read calls of the opening of a file; None: not recorded.
        requests: read calls of a batch, without those of opening; None: not recorded.
        bytes: that they moved; None: not recorded.
    """

    opens: float
    first_opens: float
    files_of_producer: float
    files: int
    header_requests: float | None
    requests: float | None
    bytes: float | None


def calls_of(recording: Recording, config: Config) -> Calls:
    """Counts the opens and reads of the producers of a run.

    Args:
        recording: the events of the run.
        config: its resolved configuration.
    """
    spans = recording.spans
    batches, opens = (spans[(spans["op"] == name).to_numpy()] for name in ("batch", "open"))
    reads = recording.io
    reads = reads[(class_codes(reads) == CLASSES.index(READ))] if len(reads) else reads
    producers = []
    for _, batches_of_thread in batches.groupby(_THREAD, sort=True):
        producers.append(
            _of_producer(batches_of_thread, _of_thread(opens, batches_of_thread), _of_thread(reads, batches_of_thread))
        )
    if not producers:
        return Calls(0.0, 0.0, 0.0, 0, None, None, None)
    count = np.array([producer["batches"] for producer in producers])
    total = {name: float(sum(producer[name] for producer in producers)) for name in producers[0]}
    later, opened, recorded = float((count - 1).sum()), total["opens"], config.trace.posix and len(reads) > 0
    return Calls(
        opens=(opened - total["first"]) / later if later else 0.0,
        first_opens=total["first"] / len(producers),
        files_of_producer=total["files"] / len(producers),
        files=int(opens["file"].nunique()),
        header_requests=total["header"] / opened if recorded and opened else None,
        requests=(total["reads"] - total["header"]) / total["batches"] if recorded else None,
        bytes=(total["bytes"] - total["header_bytes"]) / total["batches"] if recorded else None,
    )


def _of_thread(frame: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    """The rows of the thread that produced these batches."""
    same = np.ones(len(frame), bool)
    for name in _THREAD:
        same &= frame[name].to_numpy() == batches[name].iloc[0]
    rows: pd.DataFrame = frame[same]
    return rows


def _of_producer(batches: pd.DataFrame, opens: pd.DataFrame, reads: pd.DataFrame) -> dict[str, float]:
    begins = _sorted(batches, "start_ns")
    opened = _sorted(opens, "start_ns")
    start, size = reads["start_ns"].to_numpy(float), reads["bytes"].to_numpy(float)
    inside = _within(start, begins, _sorted(batches, "end_ns"))
    header = _within(start, opened, _sorted(opens, "end_ns")) & inside
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


def _within(times: Floats, start: Floats, end: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each time lies in one of the intervals, which do not overlap."""
    if not start.size:
        return np.zeros(times.size, bool)
    place = np.searchsorted(start, times, side="right") - 1
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (place >= 0) & (times < end[np.maximum(place, 0)])
    return inside
