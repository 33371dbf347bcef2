"""Findings on the I/O calls of any program: what makes them slow, and what its author can change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, META, OPEN, READ, SEEK, SYNC, WRITE, class_codes
from dlio_torch.iotrace.figures.access_order import Shares
from dlio_torch.units import counted, format_size, percent

SMALL = 4096
"""Bytes below which a transfer is small: the size of a page of memory."""
_FEW = 50  # calls that are too few for a finding
_MANY_SMALL = 0.5
_OPENS = 5  # per file
_TIME = 0.05  # share of the time in calls that a finding concerns at least
_METADATA = 0.2
_RANDOM, _CONSECUTIVE = 0.65, 0.3  # random accesses are about half sequential
_REUSE = 1.8


@dataclass(frozen=True)
class CallFinding:
    """One finding on I/O calls.

    Args:
        change: what the author of the program can do.
        text: the finding, with its figures.
        share: share of the time in I/O calls that the calls concerned take; None: no times were recorded.
    """

    change: str
    text: str
    share: float | None


def call_findings(calls: pd.DataFrame, order: Shares, files: pd.DataFrame) -> list[CallFinding]:
    """Finds what makes the I/O calls of a program slow, the calls with most time first.

    Args:
        calls: recorded I/O calls; may be empty.
        order: sequential and consecutive shares of its accesses.
        files: table of files, :func:`dlio_torch.iotrace.figures.io_tables.files`, counters included.
    """
    codes = class_codes(calls)
    seconds = (calls["end_ns"] - calls["start_ns"]).to_numpy(np.float64)
    total = float(seconds.sum())

    def share(*kinds: str) -> float | None:
        rows = np.isin(codes, [CLASSES.index(kind) for kind in kinds])
        return float(seconds[rows].sum()) / total if total > 0 else None

    findings = [*_small(calls, codes, share(READ), share(WRITE)), *_counted_small(files)]
    opens = [*_opens(files, share(OPEN, CLOSE))]
    # Files that are opened often explain the time of metadata better than their number does.
    findings += opens or (_metadata(share(OPEN, CLOSE, META, SEEK)) if len(calls) >= _FEW else ())
    findings += _synchronised(share(SYNC))
    findings += [*_random(order, share(READ, WRITE)), *_shared(files, share(READ))]
    concerned = [finding for finding in findings if finding.share is None or finding.share >= _TIME]
    return sorted(concerned, key=lambda finding: -(finding.share or 0.0))


def _small(
    calls: pd.DataFrame, codes: np.ndarray, reading: float | None, writing: float | None
) -> Iterator[CallFinding]:
    moved = calls["bytes"].to_numpy()
    for kind, share in ((READ, reading), (WRITE, writing)):
        sizes = moved[(codes == CLASSES.index(kind)) & (moved > 0)]
        small = float((sizes < SMALL).mean()) if sizes.size else 0.0
        if sizes.size >= _FEW and small >= _MANY_SMALL:
            text = f"{percent(small)} of {sizes.size:,} {kind}s are below {format_size(SMALL)}"
            yield CallFinding(f"{kind} 1 MiB or more per call, or through a buffer", text, share)


def _counted_small(files: pd.DataFrame) -> Iterator[CallFinding]:
    sums = files[files["source"] == "counters"]
    for kind, calls, size in ((READ, "reads", "bytes_read"), (WRITE, "writes", "bytes_written")):
        count, moved = float(sums[calls].sum()), float(sums[size].sum())
        if count >= _FEW and 0 < moved < SMALL * count:
            mean = format_size(round(moved / count))
            text = f"the {count:,.0f} {calls} that only counters contain are of {mean} on average"
            yield CallFinding(f"{kind} 1 MiB or more per call, or through a buffer", text, None)


def _opens(files: pd.DataFrame, share: float | None) -> Iterator[CallFinding]:
    opened = files[files["opens"].fillna(0) > 0]
    if len(opened) and opened["opens"].sum() >= max(_FEW, _OPENS * len(opened)):
        mean = float(opened["opens"].sum()) / len(opened)
        text = f"each of {counted(len(opened), 'file')} is opened {mean:.3g} times on average"
        yield CallFinding("keep files open between accesses", text, share)


def _metadata(share: float | None) -> Iterator[CallFinding]:
    if share is not None and share >= _METADATA:
        text = f"{percent(share)} of the time in I/O calls is opening, closing, seeking and metadata, not data"
        yield CallFinding("store many samples in one file, and ask for metadata once", text, share)


def _synchronised(share: float | None) -> Iterator[CallFinding]:
    if share is not None and share >= _METADATA:
        text = f"{percent(share)} of the time in I/O calls is waiting for data to reach the device (fsync)"
        yield CallFinding("synchronise once at the end, not after each write", text, share)


def _random(order: Shares, share: float | None) -> Iterator[CallFinding]:
    if order.accesses < _FEW or order.sequential is None or order.consecutive is None:
        return
    if order.sequential <= _RANDOM and order.consecutive <= _CONSECUTIVE:
        text = f"accesses are in random order: {percent(order.consecutive)} begin where the one before ended"
        yield CallFinding("access each file in order of offset, and shuffle in memory", text, share)


def _shared(files: pd.DataFrame, share: float | None) -> Iterator[CallFinding]:
    read = files[files["bytes_read"].fillna(0) > 0]
    total = float(read["bytes_read"].sum())
    shared, reused = read[read["ranks"].fillna(0) > 1], read[read["reuse"].fillna(0) >= _REUSE]
    if len(shared) and (part := float(shared["bytes_read"].sum()) / total) >= _METADATA:
        most = shared.iloc[int(shared["bytes_read"].to_numpy().argmax())]
        text = f"{percent(part)} of the bytes read are of files that several ranks read"
        change = "read a file on one rank and send it to the others, or give each rank its own files"
        text += f", most by {int(most['ranks'])} ranks from {most['file']}"
        yield CallFinding(change, text, None if share is None else share * part)
    if len(reused) and (part := float(reused["bytes_read"].sum()) / total) >= _METADATA:
        times = float((reused["reuse"] * reused["bytes_read"]).sum() / reused["bytes_read"].sum())
        text = f"the same bytes are read {times:.3g} times on average, in {counted(len(reused), 'file')}"
        change = "keep the data in memory, or let the page cache hold them"
        yield CallFinding(change, text, None if share is None else share * part)
