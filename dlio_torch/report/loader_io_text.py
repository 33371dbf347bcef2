"""Text on the system calls by which the decoupled engine read: io_uring, or why it did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.units import counted


def loader_io_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of the line on io_uring; none for a run that did not ask for it.

    Args:
        summary: content of ``summary.json``.
    """
    ranks = [rank for rank in summary.get("loader_io") or () if rank is not None]
    by_ring = [rank for rank in ranks if rank["by"] == "io_uring"]
    refused = [rank["why"] for rank in ranks if rank["why"] is not None]
    parts = []
    if by_ring:
        of_some = "" if len(by_ring) == len(ranks) else f" on {len(by_ring)} of {len(ranks)} ranks"
        depth = counted(by_ring[0]["queue_depth"], "request")
        parts.append(
            f"io_uring{of_some}, up to {depth} in flight per reader thread; the kernel does not count these reads"
        )
    if refused:
        parts.append(f"read calls of threads, because io_uring cannot be used: {refused[0]}")
    if parts:
        yield "reads by", "; ".join(parts)
