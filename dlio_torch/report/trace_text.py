"""Where the events of a run end before the run does, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.units import format_size

_MOST_RANKS = 4


def trace_ends(summary: Mapping[str, Any]) -> list[str]:
    """A line for each rank whose spans and calls end early, up to four, and one for the others."""
    ended = [one for one in summary.get("trace") or () if one["ends"]]
    lines = []
    for one in ended[:_MOST_RANKS]:
        where = "before its first step"
        if one["last_epoch"] is not None:
            where = f"in epoch {one['last_epoch']}, at step {one['last_step']}"
        lines.append(
            f"spans and calls of rank {one['rank']} end {where}, after {one['files']} files and "
            f"{format_size(one['bytes'])} of events (trace.limit_files={one['limit_files']}, "
            f"trace.limit_bytes={format_size(one['limit_bytes'])}): what rests on them, as waits, overlap and calls, "
            "is of the time until then; steps, rates and the kernel's counters are of the whole run"
        )
    if len(ended) > _MOST_RANKS:
        lines.append(f"the same with {len(ended) - _MOST_RANKS} other ranks")
    return lines
