"""Text on the requests of ranks to MPI-IO, and on the calls of MPI-IO to the file system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.units import format_size, percent


def mpiio_text(figures: Mapping[str, Any]) -> str:
    """Text of the report's row on MPI-IO.

    Args:
        figures: what :func:`dlio_torch.iotrace.figures.mpiio_calls.compare_with_requests` gave.
    """
    ranks = figures["ranks"]
    text = (
        f"{figures['io']}: {ranks} rank{'s' if ranks > 1 else ''} requested {format_size(figures['asked_bytes'])} in "
        f"{figures['calls']} MPI-IO calls"
    )
    if figures["empty_calls"]:
        text += f" ({figures['empty_calls']} of the calls requested no bytes, to take part in a collective call)"
    posix = figures["posix"]
    if posix is None:
        return f"{text}; set trace.posix=true to record the POSIX calls that MPI-IO makes"
    times = "" if posix["per_asked"] is None else f", {posix['per_asked']:.3g} times the requested bytes"
    text += f"; MPI-IO read {format_size(posix['bytes'])}{times}, in {posix['calls']} POSIX calls"
    if ranks > 1 and posix["bytes"]:
        text += f", {percent(max(posix['rank_bytes'].values()) / posix['bytes'])} of these bytes by one rank"
    return text
