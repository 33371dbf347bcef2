"""Evidence of a fitted recipe as plain values, and what of the recording it does not explain."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes
from dlio_torch.iotrace.figures.call_selection import within

SCHEMA = "dlio_torch.evidence"
VERSION = "1"


def evidence(training: RecordedTraining, fitted: FittedTraining) -> dict[str, Any]:
    """Content of ``evidence.json``.

    Args:
        training: the recording.
        fitted: the recipe that follows from it.
    """
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "recording": str(training.recording.path),
        "values": [asdict(finding) for finding in fitted.findings.values],
        "not_reproduced": list(fitted.findings.gaps),
        "unexplained": _unexplained(training, fitted),
        "notes": list(training.recording.notes) + list(training.torch.notes),
    }


def _unexplained(training: RecordedTraining, fitted: FittedTraining) -> dict[str, float | None]:
    """Shares of the read bytes and of all calls that are on files which the recipe does not have; None without any."""
    calls = training.calls
    unknown = ~within(calls, fitted.findings.files)
    reads = class_codes(calls) == CLASSES.index(READ)
    moved = np.where(reads, np.maximum(calls["bytes"].to_numpy(), 0), 0)
    return {
        "bytes_share": float(moved[unknown].sum() / moved.sum()) if moved.sum() else None,
        "calls_share": float(np.count_nonzero(unknown) / len(calls)) if len(calls) else None,
    }
