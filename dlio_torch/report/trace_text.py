"""Text on recordings that end before the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.units import format_size

_MOST_RANKS = 4


def trace_ends(summary: Mapping[str, Any]) -> list[str]:
    """Text lines on ranks whose spans and calls end early: one for each of the first four, one for the others."""
    ended = [rank for rank in summary.get("trace") or () if rank["ends"]]
    lines = []
    for rank in ended[:_MOST_RANKS]:
        position = "before its first step"
        if rank["last_epoch"] is not None:
            position = f"in epoch {rank['last_epoch']}, at step {rank['last_step']}"
        lines.append(
            f"spans and calls of rank {rank['rank']} end {position}, after {rank['files']} files and "
            f"{format_size(rank['bytes'])} of events (trace.limit_files={rank['limit_files']}, "
            f"trace.limit_bytes={format_size(rank['limit_bytes'])}): waits, overlap and figures of calls cover the "
            "time until then; steps, rates and the kernel's counters cover the whole run"
        )
    if len(ended) > _MOST_RANKS:
        lines.append(f"spans and calls of {len(ended) - _MOST_RANKS} other ranks end early, too")
    return lines
