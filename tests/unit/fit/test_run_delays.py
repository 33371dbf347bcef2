"""Run delays within spans: of the same thread, not those of the next span, and never more than the span."""

from __future__ import annotations

import numpy as np
from hand_made_trainings import MS
from span_events import Span, recorded

from dlio_torch.fit.run_delays import delays_outside_calls, run_delays


def test_delays_of_a_span_are_those_of_its_thread_that_begin_within_it() -> None:
    spans = [
        Span("fetch", 0, 10 * MS, tid=1),
        Span("batch", 2 * MS, 9 * MS, tid=1),
        Span("run_delay", 2 * MS, 5 * MS, tid=1),
        Span("compute", 10 * MS, 20 * MS, tid=1),
        Span("run_delay", 10 * MS, 14 * MS, tid=1),
        Span("batch", 2 * MS, 9 * MS, tid=2),
        Span("run_delay", 2 * MS, 3 * MS, tid=2),
        Span("batch", 9 * MS, 10 * MS, tid=3),
    ]
    table = recorded(spans).spans
    chosen = table[table["op"] != "run_delay"].sort_values(["tid", "start_ns"])
    delays = dict(zip(zip(chosen["tid"], chosen["op"], strict=True), run_delays(table, chosen), strict=True))
    assert delays == {
        (1, "fetch"): 3 * MS,
        (1, "batch"): 3 * MS,
        (1, "compute"): 4 * MS,
        (2, "batch"): MS,
        (3, "batch"): 0,
    }


def test_a_delay_is_no_longer_than_its_span() -> None:
    table = recorded([Span("batch", 0, 2 * MS), Span("run_delay", 0, 5 * MS)]).spans
    assert run_delays(table, table[table["op"] == "batch"]).tolist() == [2 * MS]


def test_a_recording_without_delays() -> None:
    table = recorded([Span("batch", 0, 2 * MS)]).spans
    assert run_delays(table, table).tolist() == [0]


def test_a_delay_within_a_call_is_no_delay_beside_it() -> None:
    """Ten batches of a call of 1 ms and 3 ms beside it; in two of them a delay of 5 ms lengthens one of both."""
    spans, delays, outside = [], np.zeros(10, np.int64), np.full(10, 3 * MS, np.int64)
    for batch in range(10):
        start = 100 * batch * MS
        longer = 5 * MS if batch == 2 else 0
        spans.append(Span("batch", start, start + 4 * MS + longer))
        spans.append(Span("read", start, start + MS + longer, bytes=4096, layer="posix"))
    delays[[2, 7]] = 5 * MS
    outside[7] += 5 * MS
    source = recorded(spans)
    batches = source.spans.sort_values("start_ns")
    assert delays_outside_calls(delays, source.io, batches, outside).tolist() == [0] * 7 + [5 * MS] + [0] * 2
