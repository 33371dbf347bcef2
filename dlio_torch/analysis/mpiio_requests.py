"""Requests that the ranks made to MPI-IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def of_ranks(ranks: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Sums the MPI-IO requests of all ranks; ``None`` if the run did not read by MPI-IO.

    Returns:
        ``io``; ``library``, the MPI; ``hints``, those in force for the first file; ``ranks``; and sums over ranks:
        ``calls``, ``empty_calls`` (of a rank that wanted nothing from a file that others read), ``asked_bytes``.
        Each call is counted by every rank that takes part in it.
    """
    requests = [rank for rank in ranks if rank is not None]
    if not requests:
        return None
    sums = {name: sum(rank[name] for rank in requests) for name in ("calls", "empty_calls", "asked_bytes")}
    first = requests[0]
    return {"io": first["io"], "library": first["library"], "hints": first["hints"], "ranks": len(requests), **sums}
