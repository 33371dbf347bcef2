from __future__ import annotations

import gzip
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.iotrace.timeline.chrome_trace import Counter, trace_ids, write_trace
from dlio_torch.iotrace.timeline.kineto_trace import RANK_KEY, write_profile


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        trace: dict[str, Any] = json.load(file)
    check_format(trace)
    return trace


def check_format(trace: dict[str, Any]) -> None:
    """The rules of the Trace Event Format (the document of the Chromium project) for the phases in use."""
    named = set()
    for event in trace["traceEvents"]:
        assert event["ph"] in {"X", "M", "C", "b", "e"}
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "process_labels", "process_sort_index", "thread_name"}
            named.add((event["name"], event["pid"], event["tid"]))
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)
        elif event["ph"] in {"b", "e"}:
            assert isinstance(event["cat"], str)
            assert isinstance(event["id"], int)
        else:
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert ("process_name", event["pid"], 0) in named or ("process_name", event["pid"], event["tid"]) in named
            assert ("thread_name", event["pid"], event["tid"]) in named


def intervals(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def names(trace: dict[str, Any], kind: str) -> set[str]:
    return {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == kind}


def test_every_span_becomes_a_complete_event(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 2)
    # Some 116 days of uptime: microseconds in a float would be off by now.
    base = 10**16
    recorder.add("read", base + 1_234_567, base + 1_239_568, step=4, file='/d/"é".h5', offset=0, bytes=64)
    recorder.add("compute", base, base + 7)
    assert write_trace(read_events(tmp_path), tmp_path / "trace.json.gz") > 2
    trace = load(tmp_path / "trace.json.gz")
    me = {"pid": os.getpid(), "tid": threading.get_native_id()}
    assert intervals(trace) == [
        {"ph": "X", "cat": "app", "name": "compute", "ts": 0.0, "dur": 0.007, "args": {}} | me,
        {"ph": "X", "cat": "app", "name": "read", "ts": 1234.567, "dur": 5.001,
         "args": {"step": 4, "file": '/d/"é".h5', "offset": 0, "bytes": 64}} | me,
    ]  # fmt: skip
    assert names(trace, "process_name") == {"rank 2 trainer"}
    assert names(trace, "thread_name") == {"MainThread"}
    assert trace["otherData"]["origin_monotonic_ns"] == base


def test_saves_in_the_background_get_lanes_of_their_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("compute", 1000, 9000, step=1)
    recorder.add("save", 2000, 7000, step=1, bytes=64)
    recorder.add("save", 3000, 12000, step=2, bytes=65)  # begins while the one before is written
    write_trace(read_events(tmp_path), tmp_path / "trace.json.gz")
    trace = load(tmp_path / "trace.json.gz")
    assert [event["name"] for event in intervals(trace)] == ["compute"]
    lanes = [event for event in trace["traceEvents"] if event["ph"] in {"b", "e"}]
    assert [(event["ph"], event["id"], event["name"], event["ts"]) for event in lanes] == [
        ("b", 0, "save of step 1", 1.0),
        ("e", 0, "save of step 1", 6.0),
        ("b", 1, "save of step 2", 2.0),
        ("e", 1, "save of step 2", 11.0),
    ]
    assert lanes[0]["args"] == {"step": 1, "bytes": 64}


def test_the_origin_is_told_in_wall_clock_time(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    start, wall = time.perf_counter_ns(), time.time_ns()
    recorder.add("read", start, start + 1)
    write_trace(read_events(tmp_path), tmp_path / "t.gz")
    assert abs(load(tmp_path / "t.gz")["otherData"]["origin_time_ns"] - wall) < 1_000_000_000


def test_many_events_are_written_in_pieces_and_stay_in_order(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    for index in range(45_000):
        recorder.add("read", 5000 + index, 6000 + index, offset=index)
    write_trace(read_events(tmp_path), tmp_path / "t.gz")
    events = intervals(load(tmp_path / "t.gz"))
    assert [event["args"]["offset"] for event in events] == list(range(45_000))
    assert all(one["ts"] <= other["ts"] for one, other in itertools.pairwise(events))


def test_an_empty_table_is_a_valid_empty_trace(tmp_path: Path) -> None:
    assert write_trace(read_events(tmp_path), tmp_path / "t.gz") == 0
    assert load(tmp_path / "t.gz")["traceEvents"] == []


def test_a_counter_gets_its_track(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("read", 2000, 3000)
    counter = Counter("batches ready", 0, os.getpid(), np.array([1000, 2500]), np.array([0.0, 2.0]))
    write_trace(read_events(tmp_path), tmp_path / "t.gz", counters=[counter])
    trace = load(tmp_path / "t.gz")
    points = [(event["ts"], event["args"]["value"]) for event in trace["traceEvents"] if event["ph"] == "C"]
    assert points == [(0.0, 0.0), (1.5, 2.0)]
    assert intervals(trace)[0]["ts"] == 1.0


def test_processes_of_two_machines_with_one_number_are_kept_apart() -> None:
    def process(rank: int) -> Process:
        return Process(rank, 77, "trainer", None, f"host{rank}", f"clock{rank}", 0, 0, {})

    ids = trace_ids([process(0), process(1), process(2)])
    assert ids[(0, 77)] == 77
    assert len(set(ids.values())) == 3


def test_a_trace_of_torch_is_moved_onto_the_same_clock(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("read", 1000, 3000)
    table = read_events(tmp_path)
    base = table.anchor_time_ns // 10**9 * 10**9
    # The moment 2000 of the monotonic clock, as torch.profiler writes it.
    ts = (2000 - table.anchor_monotonic_ns + table.anchor_time_ns - base) / 1000
    pid = os.getpid()
    torch_trace = {
        RANK_KEY: 0,
        "baseTimeNanoseconds": base,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": ts, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": pid, "tid": 5, "ts": ts, "dur": 0.5, "args": {}},
            {"ph": "X", "cat": "app", "name": "read", "pid": pid, "tid": 5, "ts": ts, "dur": 0.5, "args": {}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": ts, "dur": 0.5, "args": {}},
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": ts, "dur": 1},
        ],
    }
    write_profile(torch_trace, tmp_path / "w.1.pt.trace.json.gz")
    write_trace(table, tmp_path / "t.gz", profiler_traces=[tmp_path / "w.1.pt.trace.json.gz"])
    trace = load(tmp_path / "t.gz")
    by_name = {event["name"]: event for event in intervals(trace)}
    assert set(by_name) == {"read", "aten::add", "gemm"}
    assert by_name["aten::add"]["pid"] == by_name["read"]["pid"] == pid
    # A float holds microseconds since the base second to a nanosecond or so.
    assert by_name["aten::add"]["ts"] == pytest.approx(1.0, abs=0.002)
    assert "rank 0 device 0" in names(trace, "process_name")


@pytest.mark.parametrize("content", ["", "{}", '{"traceEvents": 3, "baseTimeNanoseconds": 1}'])
def test_a_damaged_trace_of_torch_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "w.pt.trace.json").write_text(content)
    with pytest.raises(DataError, match=r"w\.pt\.trace\.json is not a trace of torch\.profiler"):
        write_trace(read_events(tmp_path), tmp_path / "t.gz", profiler_traces=[tmp_path / "w.pt.trace.json"])
    assert not (tmp_path / "t.gz").exists()


def test_a_trace_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreconditionError, match=r"t\.gz cannot be written"):
        write_trace(read_events(tmp_path), tmp_path / "file" / "t.gz")
