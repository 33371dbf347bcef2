"""Chooses the figures on checkpoints of ``summary.json`` in which ``compare`` sets two runs beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.analysis.checkpoint_figures import RESTORE_PARTS, SAVE_PARTS

_AMOUNTS = ("bytes", "bytes_per_s")
COMPARED = (
    *(f"checkpoints.save.{name}" for name in ("stall_s", "durable_s", *SAVE_PARTS, *_AMOUNTS, "unflushed_bytes_per_s")),
    *(f"checkpoints.restore.{name}" for name in ("duration_s", *RESTORE_PARTS, *_AMOUNTS)),
    *(f"checkpoints.{name}" for name in ("slowdown", "fetch_slowdown", "peak_host_bytes")),
    *(f"goodput.{name}" for name in ("lost_share", "best_interval_s", "interval_s", "lost_share_at_interval")),
)
"""Paths in the summary of a run, or of the verb ``checkpoint``."""


def compared_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Values of the figures that a summary has, by their paths; of statistics the mean."""
    return dict(_known(summary))


def _known(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for path in COMPARED:
        value: Any = summary
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        statistics = isinstance(value, Mapping)
        number = value.get("mean") if statistics else value
        if isinstance(number, int | float):
            yield (f"{path}.mean" if statistics else path), number
