"""A faster way to add many spans of one operation."""

from __future__ import annotations

from collections.abc import Callable

from dlio_torch.iotrace.events.span_format import RECORD
from dlio_torch.iotrace.recorder.spans import Recorder

SpanAdder = Callable[[int, int, int, int], None]
"""Adds a span: begin, end (``time.perf_counter_ns()``), step, offset."""


def span_adder(recorder: Recorder, op: str, file: str) -> SpanAdder:
    """A function that adds spans of one operation and file in half the time of :meth:`Recorder.add`.

    Only this thread may call it, and not after a fork.
    """
    pack, slow = RECORD.pack_into, recorder.add
    tid, op_id, file_id = recorder.ids(op, file)

    def add(start_ns: int, end_ns: int, step: int, offset: int) -> None:
        slots, buffer = recorder.segment
        slot = next(slots, -1)
        if slot < 0 or not recorder.enabled:
            slow(op, start_ns, end_ns, step=step, file=file, offset=offset)
        else:
            pack(buffer, slot, start_ns, end_ns, offset, -1, step, file_id, tid, op_id)

    return add
