"""Text on the utilisation that loader and storage allow, each alone, and on which part of the run to work.

::

    au_limit_of_loader  the same steps with reads that cost nothing
    au_of_storage       the run's requests and prefetching with a loader that costs nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.run_recording import LIMITS
from dlio_torch.report.terminal import NOT_MEASURED
from dlio_torch.units import percent

LOADER, STORAGE = LIMITS
LABELS = {"au": "accelerator utilisation", LOADER: "limit of the loader", STORAGE: "limit of the storage"}
"""Entries of ``summary.json``, and their names for people."""
_EXPLAINS = 0.5
"""Share of the missing utilisation from which a limit explains it."""


def work_on(summary: Mapping[str, Any], *, waits: bool) -> str:
    """Sentence that names the part to work on: storage, loader or trainer; empty if neither limit is known.

    Args:
        summary: with a utilisation that is worth work.
        waits: whether waiting for data is the largest loss.
    """
    loader, storage = allowed(summary, LOADER), allowed(summary, STORAGE)
    known = {name: value for name, value in ((LOADER, loader), (STORAGE, storage)) if value is not None}
    if not known:
        return ""
    if not waits:
        return f"Work on the trainer: {_allowances(known)}."
    lowest, missing = min(known, key=lambda name: known[name]), 1 - summary["au"]["mean"]
    if 1 - known[lowest] >= _EXPLAINS * missing:
        part = "storage" if lowest == STORAGE else "loader"
        return f"Work on the {part}: {_allowances(known)}."
    if storage is None:
        return f"Work on the storage, or on more reads in flight: {_allowances(known)}."
    if loader is None:
        return f"Work on the loader: {_allowances(known)}."
    return (
        f"Work on how the loader overlaps the storage, with more workers or a longer prefetch: {_allowances(known)}, "
        "but not both at once."
    )


def allowed(summary: Mapping[str, Any], name: str) -> float | None:
    """Utilisation that the loader or the storage allows; None if it was not measured.

    Args:
        summary: of a run.
        name: :data:`LOADER` or :data:`STORAGE`.
    """
    value = (summary.get(name) or {}).get("mean")
    return None if value is None else float(value)


def limits_text(summary: Mapping[str, Any], *, hints: bool, reasons: bool) -> str:
    """One line on the limits of the utilisation, or an empty one.

    Args:
        summary: of a run.
        hints: also say how to measure a limit that was not measured.
        reasons: also say how a limit was measured, or why it does not apply.
    """
    texts = {
        part: _limit_text(summary.get(name) or {}, hints=hints, reasons=reasons)
        for part, name in (("loader", LOADER), ("storage", STORAGE))
    }
    return "; ".join(f"{part} {text}" for part, text in texts.items() if text)


def _limit_text(figures: Mapping[str, Any], *, hints: bool, reasons: bool) -> str:
    why, hint, mean = figures.get("why"), figures.get("hint"), figures.get("mean")
    if mean is not None:
        interval, source = figures["ci95"], figures.get("how") or f"from recorded {figures.get('source')}"
        sure = "" if interval is None else f" ± {50 * (interval[1] - interval[0]):.1f} points"
        return f"{percent(mean)}{sure}{f' ({source})' if reasons else ''}"
    if why and reasons:
        return f"{NOT_MEASURED} ({'; '.join(filter(None, [why, hint]))})"
    return f"{NOT_MEASURED} ({hint})" if hint and hints else ""


def _allowances(known: Mapping[str, float]) -> str:
    parts = {
        LOADER: "with reads that cost nothing, the loader allows {} utilisation",
        STORAGE: "with a loader that costs nothing, the storage allows {} utilisation",
    }
    if len(known) == 1:
        return next(parts[name].format(percent(value)) for name, value in known.items())
    return f"alone, the storage allows {percent(known[STORAGE])} utilisation and the loader {percent(known[LOADER])}"
