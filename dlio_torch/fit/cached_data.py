"""Whether the data of a recorded training lay in the page cache when it began, by the time of the first reads."""

from __future__ import annotations

import numpy as np

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes
from dlio_torch.units import counted, format_duration

_CALL_NS = 30_000.0
_BYTE_NS = 1.0
"""Longest time of a read of cached data: per call, and per byte; devices take longer, other processes disturb few."""


def fit_cache(training: RecordedTraining, data: DataFit) -> Findings:
    """Option ``cache.state``; nothing if no reads are recorded, or their times are not the program's."""
    calls = training.calls
    chosen = (class_codes(calls) == CLASSES.index(READ)) & calls["file"].isin(data.files).to_numpy()
    reads = calls[chosen & (calls["bytes"] > 0).to_numpy()].sort_values("start_ns", kind="stable")
    if reads.empty or not training.recording.trusted_times:
        return Findings()
    # Later reads of a file may find what the kernel has read ahead.
    first = reads.drop_duplicates("file")
    spent = (first["end_ns"] - first["start_ns"]).to_numpy()
    share = float(np.mean(spent <= _CALL_NS + _BYTE_NS * first["bytes"].to_numpy()))
    evidence = (
        f"{share:.0%} of the first reads of {counted(len(first), 'file')} were as fast as memory, median "
        f"{format_duration(float(np.median(spent)) / 1e9)}"
    )
    return findings([Finding("cache.state", "warm" if share > 0.5 else "cold", evidence, "likely")])
