"""The trainer's spans, made from the records of its steps when the loop is over: they cost the run nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.trace.spans import Recorder
from dlio_torch.train.steps import EVAL, TIMED, Steps


def record_spans(recorder: Recorder, steps: Steps, numbers: Sequence[int], computed_ns: Sequence[int]) -> None:
    """Record what each step did, one part after the other; a checkpoint ends what its step recorded.

    The recorded time of compute is the emulator's own reading; what the trainer does beside it (the whole
    bookkeeping of a step without compute) is a gap before allreduce and checkpoint.  So these keep their true
    place, and what is recorded inside a checkpoint lies inside its span.

    Args:
        recorder: takes the spans; ``offset`` of a span ``fetch`` is the number of the batch that came.
        steps: the records, of training and evaluation.
        numbers: of the batch of each recorded training step.
        computed_ns: when compute of each recorded training step was over, on the clock of the steps.
    """
    with recorder.kept() as full_ns:
        if recorder.enabled:
            _record(recorder, steps, numbers, computed_ns, full_ns)


def _record(recorder: Recorder, steps: Steps, numbers: Sequence[int], computed_ns: Sequence[int], full_ns: int) -> None:
    done = 0
    for row in steps:
        at = int(row["start_ns"])
        if full_ns and at > full_ns:
            return
        evaluates = row["phase"] == EVAL
        done += not evaluates
        if done > len(numbers):
            return
        number = -1 if evaluates else numbers[done - 1]
        for op in TIMED:
            if op == "allreduce" and not evaluates:
                at = max(at, computed_ns[done - 1])
            end = at + int(row[f"{op}_ns"])
            if end > at:
                recorder.add(
                    "eval_" + op if evaluates else op,
                    at,
                    end,
                    step=int(row["step"]) if evaluates else done,
                    offset=number if op == "fetch" else -1,
                )
            at = end
