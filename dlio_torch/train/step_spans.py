"""Spans of the trainer, made from its step records after the loop, so that they cost no step any time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from dlio_torch.checkpoint.save_times import SaveTimes
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.train.steps import EVAL, TIMED, Steps

_RESERVED = 256  # steps


class StepSpans:
    """Spans of each step: fetch, copy, compute, allreduce, checkpoint.

    Args:
        recorder: takes the spans; ``offset`` of a span ``fetch`` is the number of the batch.

    Attributes:
        numbers: batch number of each recorded training step.
        computed_ns: end of compute of each recorded training step, on the clock of the steps.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._reserved = 0  # steps
        self.numbers, self.computed_ns = array("q"), array("q")

    def reserve(self) -> bool:
        """Reserve space in the recorder for one step; for many steps at once, as it takes a lock.

        Returns:
            Whether the spans of the step are recorded.
        """
        if self._reserved:
            self._reserved -= 1
        if not self._reserved and self._recorder.keep(_RESERVED * len(TIMED)):
            self._reserved = _RESERVED
        return self._reserved > 0

    def record(self, steps: Steps) -> None:
        """Record the spans of the steps.

        The compute span has the duration that the emulator measured.  Other work of the trainer is a gap between
        compute and allreduce, so that allreduce and checkpoint keep their true begin, and spans of files lie inside
        the span of their checkpoint.

        Args:
            steps: records of the training and evaluation steps.
        """
        with self._recorder.kept() as full_ns:
            if self._recorder.enabled:
                self._record(steps, full_ns)

    def record_saves(self, saves: Sequence[SaveTimes]) -> None:
        """Record a span ``save`` for each save that went on in the background, from its begin until it was durable."""
        for times in saves:
            if times.durable_s > times.stall_s:
                end_ns = times.start_ns + round(times.durable_s * 1e9)
                self._recorder.add("save", times.start_ns, end_ns, step=times.step, bytes=times.bytes)

    def _record(self, steps: Steps, full_ns: int) -> None:
        done = 0
        for row in steps:
            begin_ns = int(row["start_ns"])
            if full_ns and begin_ns > full_ns:
                return
            evaluates = row["phase"] == EVAL
            done += not evaluates
            if done > len(self.numbers):
                return
            number = -1 if evaluates else self.numbers[done - 1]
            for op in TIMED:
                if op == "allreduce" and not evaluates:
                    begin_ns = max(begin_ns, self.computed_ns[done - 1])
                end = begin_ns + int(row[f"{op}_ns"])
                if end > begin_ns:
                    self._recorder.add(
                        "eval_" + op if evaluates else op,
                        begin_ns,
                        end,
                        step=int(row["step"]) if evaluates else done,
                        offset=number if op == "fetch" else -1,
                    )
                begin_ns = end
