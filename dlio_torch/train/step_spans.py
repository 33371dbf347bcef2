"""Spans of the trainer, made from its step records after the loop, so that they cost no step any time."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.train.steps import EVAL, TIMED, Steps


def record_spans(recorder: Recorder, steps: Steps, numbers: Sequence[int], computed_ns: Sequence[int]) -> None:
    """Record the spans of each step: fetch, copy, compute, allreduce, checkpoint.

    The compute span has the duration that the emulator measured.  Other work of the trainer is a gap between compute
    and allreduce, so that allreduce and checkpoint keep their true begin, and spans of files lie inside the span of
    their checkpoint.

    Args:
        recorder: takes the spans; ``offset`` of a span ``fetch`` is the number of the batch.
        steps: records of the training and evaluation steps.
        numbers: batch number of each recorded training step.
        computed_ns: end of compute of each recorded training step, on the clock of the steps.
    """
    with recorder.kept() as full_ns:
        if recorder.enabled:
            _record(recorder, steps, numbers, computed_ns, full_ns)


def _record(recorder: Recorder, steps: Steps, numbers: Sequence[int], computed_ns: Sequence[int], full_ns: int) -> None:
    done = 0
    for row in steps:
        begin_ns = int(row["start_ns"])
        if full_ns and begin_ns > full_ns:
            return
        evaluates = row["phase"] == EVAL
        done += not evaluates
        if done > len(numbers):
            return
        number = -1 if evaluates else numbers[done - 1]
        for op in TIMED:
            if op == "allreduce" and not evaluates:
                begin_ns = max(begin_ns, computed_ns[done - 1])
            end = begin_ns + int(row[f"{op}_ns"])
            if end > begin_ns:
                recorder.add(
                    "eval_" + op if evaluates else op,
                    begin_ns,
                    end,
                    step=int(row["step"]) if evaluates else done,
                    offset=number if op == "fetch" else -1,
                )
            begin_ns = end
