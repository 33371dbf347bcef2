"""Bandwidth over time, against fractions summed call by call."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st
from io_events import Call, calls, examples, table

from dlio_torch.iotrace.events.call_names import class_of
from dlio_torch.iotrace.figures import bandwidth


def share(start: int, end: int, low: int, high: int, is_last: bool) -> Fraction:
    """The share of a call that falls into a bin."""
    if start == end:
        return Fraction(low <= start < high or (is_last and start == high))
    return Fraction(max(min(end, high) - max(start, low), 0), end - start)


@examples(calls(), st.integers(1, 30), st.none() | st.tuples(st.integers(0, 8), st.integers(8, 25)))
def test_bins(made: list[Call], bins: int, window: tuple[int, int] | None) -> None:
    found = bandwidth.over_time(table(made), bins, window=window)
    if not made and window is None:
        assert not len(found)
        return
    low, high = window or (min(call.start for call in made), max(call.end for call in made))
    high = max(high, low + 1)
    assert len(found) == min(bins, high - low)
    assert found["start_ns"].tolist() == [low, *found["end_ns"].tolist()[:-1]]
    assert found["end_ns"].iloc[-1] == high
    for number, row in enumerate(found.to_dict("records")):
        edges = row["start_ns"], row["end_ns"]
        last = number == len(found) - 1
        width = edges[1] - edges[0]
        in_flight, busy = Fraction(0), set()
        for kind in ("read", "write"):
            some = [call for call in made if class_of(call.op) == kind]
            expected = sum(max(call.bytes, 0) * share(call.start, call.end, *edges, last) for call in some)
            assert row[f"{kind}_bytes"] == pytest.approx(float(expected), abs=1e-9)
            assert row[f"{kind}_bytes_per_s"] == pytest.approx(float(expected / width) * 1e9, abs=1)
            assert row[f"{kind}s"] == sum(share(call.start, call.start, *edges, last) for call in some)
            in_flight += sum((call.end - call.start) * share(call.start, call.end, *edges, last) for call in some)
        assert row["in_flight"] == pytest.approx(float(in_flight / width), abs=1e-9)
        for call in made:
            busy |= set(range(max(call.start, edges[0]), min(call.end, edges[1])))
        assert row["busy"] == len(busy) / width


def test_no_byte_is_lost_among_many() -> None:
    random = np.random.default_rng(1)
    starts = random.integers(0, 10**10, 20_000)
    ends = starts + random.integers(0, 10**8, starts.size)
    sizes = random.integers(0, 2**30, starts.size)
    frame = table([Call()] * starts.size).assign(start_ns=starts, end_ns=ends, bytes=sizes)
    found = bandwidth.over_time(frame, 777)
    assert found["read_bytes"].sum() == pytest.approx(sizes.sum(), rel=1e-12)
    assert (found["write_bytes"] == 0).all()


def test_nothing_happens_in_a_gap() -> None:
    made = [Call(bytes=10**6, start=7 * n, end=7 * n + 333) for n in range(100)]
    frame = table([*made, Call(start=10**6, end=10**6)])
    found = bandwidth.over_time(frame, 100)
    assert (found["read_bytes"].to_numpy()[1:-1] == 0).all()
    assert found["read_bytes"].iloc[-1] == 10


def test_a_window_must_be_one() -> None:
    with pytest.raises(ValueError, match=r"window=\(5, 4\) ends before it begins"):
        bandwidth.over_time(table([]), window=(5, 4))
    with pytest.raises(ValueError, match="bins=0: the number of bins must be at least 1"):
        bandwidth.over_time(table([]), 0)
