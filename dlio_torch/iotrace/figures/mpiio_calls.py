"""Compares the calls of MPI-IO to the file system with the requests of the ranks to MPI-IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes
from dlio_torch.iotrace.figures.call_selection import within


def compare_with_requests(
    figures: Mapping[str, Any] | None, frame: pd.DataFrame | None, data: Iterable[Path | str]
) -> dict[str, Any] | None:
    """Adds the recorded read calls on the data set to the ranks' requests.

    Definitions::

        posix.calls, posix.bytes   recorded read calls on files of the data set, the files' own tables included
        posix.ranks                ranks that made one; every rank reads a file's own tables
        posix.rank_bytes           bytes by rank: where reads are collective, those of aggregators and of tables
        posix.per_asked            posix.bytes / asked_bytes: above 1 where gaps or tables were read, too

    Args:
        figures: what :func:`of_ranks` gave.
        frame: the event table; ``None``: calls were not recorded.
        data: the data set, or the copies of it that were read.
    """
    if figures is None:
        return None
    if frame is None:
        return {**figures, "posix": None}
    kept = (frame["layer"] == "posix") & within(frame, data) & (class_codes(frame) == CLASSES.index(READ))
    reads = frame[kept]
    read, requested = int(reads["bytes"].clip(lower=0).sum()), figures["asked_bytes"]
    posix = {
        "calls": len(reads),
        "bytes": read,
        "mean_bytes": read / len(reads) if len(reads) else None,
        "max_bytes": int(reads["bytes"].max()) if len(reads) else None,
        "ranks": int(reads["rank"].nunique()),
        "rank_bytes": {int(rank): int(size) for rank, size in reads.groupby("rank")["bytes"].sum().items()},
        "per_asked": read / requested if requested else None,
    }
    return {**figures, "posix": posix}
