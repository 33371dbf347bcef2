"""Horovod's timeline: read whole and cut off, and on the clock of the run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.timeline.chrome_trace import write_trace
from dlio_torch.iotrace.timeline.horovod_timeline import Interval, read_timeline
from dlio_torch.run_directory.run_dir import RunDir

START_US = 1_700_000_000_000_000
# As Horovod 0.28.1 writes it: lines for what is new, all else on one line; a barrier ends twice.
WHOLE = (
    '[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":AT_US}},\n'
    '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
    '{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "allreduce.w"}},\n'
    '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},'
    '{"ph": "X", "name": "1", "ts": 11, "pid": 1, "dur": 0},{"ph": "E", "ts": 15, "pid": 1},'
    '{"ph": "i", "name": "CYCLE_START", "ts": 15, "s": "g"},'
    '{"ph": "B", "name": "ALLREDUCE", "ts": 20, "pid": 1},{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 22, "pid": 1},'
    '{"ph": "E", "ts": 30, "pid": 1},{"ph": "E", "ts": 31, "pid": 1, "args": {"dtype": "float32", "shape": "[4]"}},'
    '{"ph": "E", "ts": 32, "pid": 1}]'
).replace("AT_US", str(START_US))
AT = START_US * 1000
FOUND = (
    Interval("allreduce.w", "rank 1 ready", AT + 11_000, AT + 11_000, {}),
    Interval("allreduce.w", "NEGOTIATE_ALLREDUCE", AT + 10_000, AT + 15_000, {}),
    Interval("allreduce.w", "GLOO_ALLREDUCE", AT + 22_000, AT + 30_000, {}),
    Interval("allreduce.w", "ALLREDUCE", AT + 20_000, AT + 31_000, {"dtype": "float32", "shape": "[4]"}),
)


def test_a_whole_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(WHOLE)
    timeline = read_timeline(path)
    assert timeline.intervals == FOUND
    assert (timeline.unfinished, timeline.cut) == (0, False)


def test_a_timeline_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    before = WHOLE.index('{"name": "process_sort_index"')
    for size in range(0, len(WHOLE), 5):
        path.write_text(WHOLE[:size])
        if size < before - 2:
            with pytest.raises(DataError, match=r"timeline\.json is not a timeline of Horovod"):
                read_timeline(path)
            continue
        timeline = read_timeline(path)
        assert timeline.cut
        assert timeline.intervals == FOUND[: len(timeline.intervals)]
    assert timeline.unfinished == 0
    path.write_text(WHOLE[: WHOLE.index('{"ph": "E", "ts": 30')])
    assert read_timeline(path).unfinished == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "no", '[{"args": {"start_time_since_epoch_in_micros": "x"}}]'])
def test_what_is_no_timeline_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(text)
    with pytest.raises(DataError, match="is not a timeline of Horovod"):
        read_timeline(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_timeline(tmp_path / "absent")


def test_each_tensor_gets_a_track(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(WHOLE[: WHOLE.index('{"ph": "E", "ts": 32')])
    write_trace(read_events(tmp_path / "none"), tmp_path / "trace.json.gz", horovod=read_timeline(path))
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert trace["otherData"]["origin_time_ns"] == AT + 10_000
    assert trace["otherData"]["horovod"] == {"cut": True, "unfinished": 0, "left_out": 0}
    drawn = [(event["name"], event["ts"], event["dur"]) for event in trace["traceEvents"] if event["ph"] == "X"]
    assert drawn == [
        ("NEGOTIATE_ALLREDUCE", 0.0, 5.0), ("rank 1 ready", 1.0, 0.0), ("ALLREDUCE", 10.0, 11.0),
        ("GLOO_ALLREDUCE", 12.0, 8.0),
    ]  # fmt: skip
    named = {event["name"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert named == {"process_name": "Horovod on rank 0", "thread_name": "allreduce.w"}


@pytest.mark.ranks
@pytest.mark.horovod
def test_the_timeline_of_a_run_lies_inside_its_allreduces(tmp_path: Path) -> None:
    arguments = ["recipe=minimal", "scale=tiny", "compute.step_s=2ms", "train.allreduce_bytes=64KiB", "output.dir=run"]
    arguments += ["trace.horovod=true", "dist.horovod.fusion_threshold_bytes=1MiB"]
    ended = run_ranks("horovod", 2, ["-m", "dlio_torch", *arguments], cwd=tmp_path)
    assert [rank.exit_code for rank in ended] == [0, 0], ended[0].stderr
    assert "tensor fusion up to 1 MiB (option)" in ended[0].stdout
    directory = RunDir(tmp_path / "run")
    for found in (directory.summary, directory.environment):
        told: dict[str, Any] = directory.read_json(found)
        assert (told.get("ranks_by") or told["ranks"])["settings"]["fusion_threshold_bytes"] == 2**20
    events = read_events(directory.events)
    spans = events.frame[(events.frame["op"] == "allreduce") & (events.frame["rank"] == 0)]
    timeline = read_timeline(directory.horovod)
    reduced = [one for one in timeline.intervals if one.op == "ALLREDUCE" and "gradient" in one.tensor]
    tensors = {one.tensor for one in reduced}
    assert len(tensors) > 8
    assert len(reduced) == len(tensors) * len(spans)
    # The wall clock may be adjusted by a little between the two anchors.
    shift, slack = events.anchor_monotonic_ns - events.anchor_time_ns, 1_000_000
    for one in reduced:
        at = (one.start_ns + shift, one.end_ns + shift)
        assert any(
            start - slack <= at[0] <= at[1] <= end + slack
            for start, end in zip(spans["start_ns"], spans["end_ns"], strict=True)
        )
    trace = json.loads(gzip.decompress(directory.trace.read_bytes()))
    drawn = [event for event in trace["traceEvents"] if event.get("cat") == "horovod"]
    assert len(drawn) == len(timeline.intervals)
    assert {"NEGOTIATE_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "GLOO_ALLREDUCE"} <= {event["name"] for event in drawn}
