"""Text on the utilisation that loader and storage allow, each alone, and on which part of the run to work.

::

    au_limit_of_loader  the same steps with reads that cost nothing
    au_of_storage       the run's requests and prefetching with a loader that costs nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def limit_rows(summary: Mapping[str, Any], *, hints: bool, reasons: bool) -> Iterator[tuple[str, str]]:
    """Names and texts of the limits.

    Args:
        summary: of a run.
        hints: also say how to measure a limit that was not measured.
        reasons: also say why a limit does not apply.
    """
    for name in LIMITS:
        figures = summary.get(name) or {}
        why = figures.get("why") or ""
        if figures.get("mean") is not None:
            yield LABELS[name], limit_text(figures)
        elif why and reasons:
            yield LABELS[name], f"{NOT_MEASURED}: {why}"
        elif hints and "; set " in why:
            yield LABELS[name], f"{NOT_MEASURED}; set {why.rpartition('; set ')[2]}"


def limit_text(figures: Mapping[str, Any]) -> str:
    """One line on a known limit.

    Args:
        figures: ``au_limit_of_loader`` or ``au_of_storage`` of ``summary.json``.
    """
    text, interval = f"{percent(figures['mean'])} utilisation", figures["ci95"]
    if interval is not None:
        text += f", {percent(interval[0])} to {percent(interval[1])} with 95 % confidence"
    source = figures.get("how") or figures.get("source")
    return f"{text} ({source})" if source else text


def _allowances(known: Mapping[str, float]) -> str:
    parts = {
        LOADER: "with reads that cost nothing, the loader allows {} utilisation",
        STORAGE: "with a loader that costs nothing, the storage allows {} utilisation",
    }
    if len(known) == 1:
        return next(parts[name].format(percent(value)) for name, value in known.items())
    return f"alone, the storage allows {percent(known[STORAGE])} utilisation and the loader {percent(known[LOADER])}"
