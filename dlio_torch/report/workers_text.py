"""Text on the worker processes of a run: start method, memory, and the CPUs on which readers run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlio_torch.units import counted, format_size

_MOST = 8  # readers whose CPUs are listed


def workers_rows(summary: Mapping[str, Any], *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Names and texts of the lines on workers; none for a loader without them.

    Args:
        summary: content of ``summary.json``.
        verbose: list CPUs of readers that are not placed (``loader.affinity=none``), too.
    """
    workers = summary.get("workers")
    if workers is None:
        return
    if workers["start_method"] is not None and workers["count"]:
        yield "workers", _memory_text(workers)
    if workers["affinity"] is not None and (verbose or workers["placed"]):
        yield "placement", _placement_text(workers["affinity"])


def _memory_text(workers: Mapping[str, Any]) -> str:
    text = f"{workers['count']} by {workers['start_method']}"
    memory = workers["pss_bytes"]
    if memory is None:
        return f"{text}; memory not measured: {workers['why']['pss_bytes']}"
    return f"{text}, {format_size(memory['mean'])} of memory each (largest {format_size(memory['max'])})"


def _placement_text(ranks: Sequence[Mapping[str, Any]]) -> str:
    first = ranks[0]
    kind, cpus = ("workers", first["workers"]) if first["workers"] else ("reader threads", first["threads"])
    shown = "; ".join(text or "not measured" for text in cpus[:_MOST])
    more = f" and {len(cpus) - _MOST} more" if len(cpus) > _MOST else ""
    text = f"{kind} on CPUs {shown}{more}, trainer on {first['trainer']}"
    return text if len(ranks) == 1 else f"rank {first['rank']} of {counted(len(ranks), 'rank')}: {text}"
