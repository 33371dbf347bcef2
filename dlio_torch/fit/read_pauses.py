"""Pauses between the calls of a process, and the calls as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes

Ints = npt.NDArray[np.int64]

_FEWEST_PAUSES = 7
"""Pauses below which the lengths of pauses do not tell batches apart."""
_PAUSE_RATIO = 2.5
"""Ratio by which the shortest pause is longer than the longest time between calls of one batch."""


@dataclass(frozen=True)
class CallColumns:
    """Columns of the calls as arrays; ``moved`` is the bytes of reads, 0 for other calls."""

    calls: pd.DataFrame
    begin: Ints
    end: Ints
    rank: Ints
    file: Ints
    code: npt.NDArray[np.int8]
    offset: Ints
    moved: Ints

    @classmethod
    def of(cls, calls: pd.DataFrame) -> CallColumns:
        """Columns of calls of the event table."""
        code = class_codes(calls)
        moved = np.where(code == CLASSES.index(READ), np.maximum(calls["bytes"].to_numpy(), 0), 0)
        begin, end, rank, offset = (calls[name].to_numpy() for name in ("start_ns", "end_ns", "rank", "offset"))
        return cls(calls, begin, end, rank, calls["file"].cat.codes.to_numpy().astype(np.int64), code, offset, moved)

    def total(self, rows: Ints) -> int:
        """Bytes that these calls read."""
        return int(self.moved[rows].sum())


def usual_number(gaps: Sequence[Ints]) -> tuple[int, float]:
    """Number of parts between pauses of most processes, and their shortest pause in ns; 1 without pauses.

    Args:
        gaps: times between the calls of each process, ns.
    """
    counted = [pauses(of_process) for of_process in gaps]
    usual = int(np.median([count for count, _ in counted]))
    return usual + 1, min(counted, key=lambda entry: abs(entry[0] - usual))[1]


def gaps_between(table: CallColumns, first: Ints, last: Ints) -> Ints:
    """Time from the last call of a part to the first call of the next one, ns, at least 1.

    Args:
        table: the calls.
        first: the first call of each part of a process.
        last: its last call.
    """
    gaps: Ints = np.maximum(table.begin[first[1:]] - table.end[last[:-1]], 1)
    return gaps


def longest(gaps: Ints, count: int) -> Ints:
    """Places of the ``count`` longest gaps, ascending."""
    return np.sort(np.argsort(-gaps, kind="stable")[:count])


def pauses(gaps: Ints) -> tuple[int, float]:
    """Number of pauses and the shortest one: those above the largest step among the longer half of all gaps."""
    ordered = np.sort(gaps)[::-1].astype(np.float64)
    numbers = np.arange(_FEWEST_PAUSES, max(_FEWEST_PAUSES, len(ordered) // 2) + 1)
    numbers = numbers[numbers < len(ordered)]
    if not len(numbers):
        return 0, 0.0
    ratios = ordered[numbers - 1] / ordered[numbers]
    best = int(ratios.argmax())
    return (int(numbers[best]), float(ordered[numbers[best] - 1])) if ratios[best] >= _PAUSE_RATIO else (0, 0.0)
