"""Steps of one rank over time: their durations and the measured intervals.

What a step's duration and a measured interval are is defined in :mod:`dlio_torch.analysis.step_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlio_torch.iotrace.figures.intervals import length, union
from dlio_torch.train.steps import EVAL, TIMED, TRAIN, WARMUP, Steps

PARTS = (*TIMED, "other")
"""Names of the parts of a step."""

_Int = NDArray[np.int64]


class RankSteps:
    """Durations and measured intervals of one rank's steps, ns.

    Args:
        steps: its records, in the order of time.
        offset_ns: what brings its clock on the one that all ranks share.
        pauses: begin and end, on its clock, of times that count nowhere.

    Attributes:
        steps: all records.
        phase: of each step.
        start: of each step, on the common clock.
        duration: of each step.
        is_train: whether a step is measured.
        train: the measured steps.
        train_duration: of each of them.
        followed: whether another step of the same loop follows each of them, so that its whole duration was seen.
        elapsed_ns: length of the measured intervals.
        requested_ns: compute time that the measured steps asked for.
    """

    def __init__(self, steps: Steps, offset_ns: int, pauses: Sequence[tuple[int, int]]) -> None:
        self.steps = steps
        self.pauses = [(begin + offset_ns, end + offset_ns) for begin, end in pauses]
        self.phase = steps["phase"]
        self.start = steps["start_ns"] + offset_ns
        parts = sum(steps[f"{part}_ns"] for part in TIMED)
        self.duration = np.array(parts, dtype=np.int64) if steps.size else np.zeros(0, dtype=np.int64)
        followed = np.zeros(steps.size, dtype=np.bool_)
        if steps.size > 1:
            same_loop = np.diff((self.phase == EVAL).astype(int)) == 0
            followed[:-1] = same_loop & (np.diff(steps["epoch"]) == 0)
            self.duration[followed] = np.diff(self.start)[followed[:-1]]
        self.is_train = self.phase == TRAIN
        self.train = self.of_phase(TRAIN)
        self.train_duration = self.duration[self.is_train]
        self.followed = followed[self.is_train]
        self.elapsed_ns = _length(self.intervals(TRAIN))
        self.requested_ns = int(self.train["requested_ns"].sum())

    @property
    def au(self) -> float | None:
        """Accelerator utilisation; None if nothing was measured."""
        return self.requested_ns / self.elapsed_ns if self.elapsed_ns else None

    def of_phase(self, phase: int) -> Steps:
        """The step records of a phase; a view without a copy if the records are contiguous."""
        rows = np.flatnonzero(self.phase == phase)
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            phase_steps: Steps = self.steps[rows[0] : rows[-1] + 1]
            return phase_steps
        return self.steps[rows]

    def intervals(self, phase: int) -> list[tuple[int, int]]:
        """Time intervals of the steps of ``phase``, ns, each from the end of the preceding step.

        The time before a loop's first step belongs to that loop; what precedes the first measured step
        is warm-up and does not count.
        """
        intervals: list[tuple[int, int]] = []
        cuts = np.flatnonzero(np.diff(self.phase.astype(int))) + 1
        for run in np.split(np.arange(self.phase.size), cuts):
            if run.size and self.phase[run[0]] == phase:
                first = run[0]
                if first > 0 and self.phase[first - 1] != WARMUP:
                    begin = self.start[first - 1] + self.duration[first - 1]
                else:
                    begin = self.start[first]
                intervals += self._without_pauses(int(begin), int(self.start[run[-1]] + self.duration[run[-1]]))
        return intervals

    def _without_pauses(self, begin: int, end: int) -> list[tuple[int, int]]:
        intervals = []
        for pause, after in self.pauses:
            if begin <= pause and after <= end:
                intervals.append((begin, pause))
                begin = after
        return [*intervals, (begin, end)]

    def part(self, name: str) -> _Int:
        """Nanoseconds of a part of each measured step; ``other`` only for steps that another step follows."""
        if name == "other":
            spent = sum(self.train[f"{part}_ns"] for part in TIMED)
            rest: _Int = (self.train_duration - spent)[self.followed]
            return rest
        column: _Int = self.train[f"{name}_ns"]
        return column


def elapsed_ns(by_rank: Sequence[list[tuple[int, int]]]) -> int:
    """Length of the union of the ranks' intervals, ns; of the longest rank if none overlap (different clocks)."""
    present = [intervals for intervals in by_rank if intervals]
    if present and max(intervals[0][0] for intervals in present) < min(intervals[-1][1] for intervals in present):
        return _length([interval for intervals in present for interval in intervals])
    return max((_length(intervals) for intervals in present), default=0)


def _length(intervals: Sequence[tuple[int, int]]) -> int:
    """Length of the union of intervals, ns."""
    bounds = np.array(intervals, np.int64).reshape(-1, 2)
    return length(union(bounds[:, 0], bounds[:, 1]))
