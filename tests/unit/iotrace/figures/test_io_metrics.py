"""Selection of calls, I/O time, sizes, bandwidth, and the whole analysis as plain values."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from io_events import Call, calls, examples, recording, table

from dlio_torch.iotrace.events.call_names import class_of
from dlio_torch.iotrace.events.posix_accounts import ProcessIo
from dlio_torch.iotrace.events.recording import COUNTERS
from dlio_torch.iotrace.figures import io_metrics
from dlio_torch.iotrace.figures.transfer_sizes import DARSHAN_LABELS

S = 1e-9


def points(made: list[Call]) -> set[int]:
    return {point for call in made for point in range(call.start, call.end)}


@examples(calls())
def test_io_time(made: list[Call]) -> None:
    found = io_metrics.io_time(table(made), runtime_s=100 * S)
    summed = sum(call.end - call.start for call in made)
    assert found.global_s == pytest.approx(len(points(made)) * S)
    assert found.summed_s == pytest.approx(summed * S)
    ranks = {call.rank for call in made}
    assert found.mean_per_rank_s == (pytest.approx(summed * S / len(ranks)) if ranks else None)
    processes = sorted({(call.rank, call.pid) for call in made})
    rows = found.per_process.to_dict("records")
    assert [(row["rank"], row["pid"]) for row in rows] == processes
    for row in rows:
        own = [call for call in made if (call.rank, call.pid) == (row["rank"], row["pid"])]
        assert row["calls"] == len(own)
        assert row["io_s"] == pytest.approx(len(points(own)) * S)
        assert row["summed_s"] == pytest.approx(sum(call.end - call.start for call in own) * S)
        assert row["share"] == pytest.approx(len(points(own)) / 100)
    assert found.longest_s == max((row["io_s"] for row in rows), default=0)


@examples(calls())
def test_bandwidth(made: list[Call]) -> None:
    found = io_metrics.bandwidth(table(made))
    for name, classes in (("read", ["read"]), ("write", ["write"]), ("all", ["read", "write"])):
        own = [call for call in made if class_of(call.op) in classes]
        one = found[name]
        moved, spent = sum(max(call.bytes, 0) for call in own), len(points(own))
        assert (one.calls, one.bytes) == (len(own), moved)
        assert one.bytes_per_s == (pytest.approx(moved / spent / S) if spent else None)
        assert one.per_rank["rank"].tolist() == sorted({call.rank for call in own})
        assert one.per_rank["bytes"].sum() == moved


@examples(calls())
def test_sizes(made: list[Call]) -> None:
    both = io_metrics.sizes_by_class(table(made))
    for name, classes in (("read", ["read"]), ("write", ["write"]), ("all", ["read", "write"])):
        moved = [call.bytes for call in made if class_of(call.op) in classes and call.bytes >= 0]
        found = both[name]
        assert (found.count, found.bytes) == (len(moved), sum(moved))
        assert sum(found.darshan) == sum(found.log2) == len(moved)
        if not moved:
            assert (found.min, found.max, found.mean, found.median, found.percentiles) == (None, None, None, None, {})
            continue
        assert (found.min, found.max, found.mean) == (min(moved), max(moved), pytest.approx(np.mean(moved)))
        assert found.median == np.median(moved)
        assert list(found.percentiles.values()) == pytest.approx(np.percentile(moved, (5, 10, 25, 75, 90, 95, 99)))
        assert Counter(dict(found.common)) == Counter(moved)
        assert [count for _, count in found.common] == sorted(Counter(moved).values(), reverse=True)


def test_size_classes() -> None:
    lasts = (100, 1024, 10 * 1024, 100 * 1024, 2**20, 4 * 2**20, 10 * 2**20, 100 * 2**20, 2**30)
    at, behind = (io_metrics.transfer_sizes(table(Call(bytes=last + extra) for last in lasts)) for extra in (0, 1))
    assert at.darshan == (1,) * 9 + (0,)
    assert behind.darshan == (0,) + (1,) * 9
    assert len(DARSHAN_LABELS) == 10
    assert io_metrics.transfer_sizes(table(Call(bytes=size) for size in (0, 1, 2, 3, 4, 7, 8))).log2 == (1, 1, 2, 2, 1)
    many = [5] * 2 + [9] * 3 + list(range(20, 40))
    common = io_metrics.transfer_sizes(table(Call(bytes=size) for size in many))
    assert common.common[:2] == ((9, 3), (5, 2))
    assert len(common.common) == 10


LAYERED = [
    Call("file_read", bytes=30, file="/data/a", layer="mpiio"),
    Call("read", bytes=30, file="/data/a", start=1),
    Call("fwrite", bytes=7, file="/data/log", layer="stdio", rank=1, start=2),
    Call("fread", bytes=5, file="/data/a", layer="stdio", start=3),
    Call("open", bytes=-1, file="/data/a", start=4),
    Call("read", bytes=3, file=None, start=5),
    Call("fetch", bytes=99, file=None, layer="app", start=6),
]


def test_a_byte_counts_once() -> None:
    found = io_metrics.select(recording(table(LAYERED)))
    assert found["start_ns"].tolist() == [1, 2, 4, 5]


def test_selections() -> None:
    one = recording(table(LAYERED))

    def starts(**choice: object) -> list[int]:
        return io_metrics.select(one, **choice)["start_ns"].tolist()  # type: ignore[arg-type]

    assert starts(layers="stdio") == [2, 3]
    assert starts(layers=("posix", "mpiio"), classes="read") == [0, 1, 5]
    assert starts(classes=("open", "write")) == [2, 4]
    assert starts(files="*/log") == starts(files="/data/log") == starts(files=["/data/log", "/none"]) == [2]
    assert starts(exclude="*/a") == [2, 5]
    assert starts(ranks=1) == starts(ranks=[1, 2]) == [2]
    assert starts(ranks=3) == []
    odd = table([Call(file="/data/[1]"), Call(file="/data/1", start=1)])
    assert io_metrics.select_frame(odd, files="/data/[1]")["start_ns"].tolist() == [0, 1]
    assert io_metrics.select_frame(odd) is odd
    with pytest.raises(ValueError, match="no layer 'app'; it must be one of posix, stdio, mpiio"):
        io_metrics.select(one, layers="app")
    with pytest.raises(ValueError, match="no class 'reads'; it must be one of open, close"):
        io_metrics.select(one, classes="reads")


@examples(calls(), count=15)
def test_the_analysis_is_plain(made: list[Call]) -> None:
    found = io_metrics.analyse(recording(table(made), world_size=2, runtime_s=1.0), bins=5)
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert found["coarse"] is False
    if made:
        assert sum(one["calls"] for one in found["io"]["classes"].values()) == found["io"]["calls"] == len(made)
        moved = sum(max(call.bytes, 0) for call in made if class_of(call.op) == "read")
        assert sum(found["over_time"]["read_bytes"]) == pytest.approx(moved)
        assert sum(row["bytes_read"] for row in found["files"]["rows"]) == moved
        assert sum(row["bytes_read"] for row in found["ranks"]) == moved
        assert sum(row["bytes_read"] for row in found["processes"]) == moved


def test_what_was_not_looked_at_is_not_zero() -> None:
    found = io_metrics.analyse(recording(table([Call()]), sees=frozenset({"read"})))
    assert found["io"]["classes"]["write"] is None
    assert found["io"]["sizes"]["write"] is None
    assert found["io"]["shares"]["process"]["write"] is None
    row = found["files"]["rows"][0]
    assert (row["opens"], row["writes"], row["bytes_written"], row["bytes_read"]) == (None, None, None, 10)
    assert found["io"]["jumps"] is None


def test_layers_beside_each_other() -> None:
    found = io_metrics.analyse(recording(table(LAYERED)))
    assert found["layers"] == ["posix", "stdio"]
    assert found["io"]["bandwidth"]["all"]["bytes"] == 40
    assert {name: one["bandwidth"]["all"]["bytes"] for name, one in found["by_layer"].items()} == {
        "posix": 33,
        "stdio": 12,
        "mpiio": 30,
    }


def test_counters_only_are_coarse() -> None:
    counters = pd.DataFrame(
        [
            [-1, "posix", "/data/a", 8, 100, 0, 5, 4000, 0, 2.0, 0.0, 0.5, 90, 0, 80, 0],
            [-1, "mpiio", "/data/a", 8, 100, 0, -1, 4000, 0, 2.5, 0.0, np.nan, -1, -1, -1, -1],
            [0, "posix", "/data/b", 1, -1, 2, 0, -1, 50, 0.1, 0.2, 0.3, -1, 1, -1, 1],
            [1, "posix", "/data/b", 1, 3, 2, 0, 70, 50, 0.1, 0.2, 0.3, 1, 1, 1, 1],
            [0, "stdio", "/data/log", 1, 0, 10, 0, 0, 900, 0.0, 0.1, 0.0, -1, -1, -1, -1],
        ],
        columns=list(COUNTERS),
    )
    log = replace(recording(table([])), counters=counters, kind="darshan")
    found = io_metrics.analyse(log)
    assert json.dumps(found, allow_nan=False)
    assert (found["coarse"], found["io"], found["over_time"]) == (True, None, None)
    assert found["why"] == "the log contains counters only, no single calls"
    posix = found["counters"]["posix"]
    assert (posix["files"], posix["reads"], posix["writes"], posix["bytes_written"]) == (2, None, 4, 100)
    assert posix["read_s"] == pytest.approx(2.2)
    assert found["counters"]["stdio"]["write_mean_bytes"] == 90
    rows = found["files"]["rows"]
    assert [(row["layer"], row["file"], row["source"]) for row in rows] == [
        ("posix", "/data/a", "counters"),
        ("stdio", "/data/log", "counters"),
        ("posix", "/data/b", "counters"),
    ]
    first, second, third = rows
    assert (first["ranks"], first["reads"], first["read_mean_bytes"], first["io_s"]) == (None, 100, 40, None)
    assert (first["sequential"], first["consecutive"], first["summed_s"]) == (0.9, 0.8, 2.5)
    assert (second["ranks"], second["seeks"], second["sequential"]) == (1, 0, None)
    assert (third["ranks"], third["reads"], third["bytes_read"], third["writes"]) == (2, None, None, 4)
    assert (found["ranks"], found["processes"]) == ([], [])  # some of the sums are of no single rank
    alone = replace(log, counters=counters[counters["rank"] >= 0])
    first, second = io_metrics.analyse(alone)["ranks"]
    assert (first["rank"], first["source"], first["files"]) == (0, "counters", 2)
    assert (first["writes"], first["reads"]) == (12, None)
    assert (second["rank"], second["bytes_read"], second["sequential"]) == (1, 70, 0.4)


def test_nothing_was_recorded() -> None:
    found = io_metrics.analyse(recording(table([])))
    assert (found["coarse"], found["why"]) == (False, "the recorded program made no I/O call")
    assert found["counters"] is None
    assert found["files"] == {"count": 0, "rows_in_all": 0, "rows_given": 0, "rows": []}
    assert io_metrics.analyse(recording(table([]), sees=frozenset()))["why"] == "I/O calls were not recorded"


def test_what_the_calls_do_not_show() -> None:
    accounts = tuple(
        ProcessIo(0, pid, rchar, 50, 4096, 0, 70, 60, 1000 * pid, 3, pid - 1, 0, complete=pid == 1)
        for pid, rchar in ((1, 100), (2, 80))
    )
    one = recording(table([Call()]))
    found = io_metrics.analyse(replace(one, events=replace(one.events, accounts=accounts)))["untraced"]
    assert json.dumps(found, allow_nan=False)
    assert (found["read_bytes"], found["read_share"]) == (40, 40 / 180)
    assert (found["write_bytes"], found["write_share"]) == (0, 0)  # more was traced than the kernel counted
    assert (found["mapped_bytes"], found["io_uring_rings"], found["device_read_bytes"]) == (3000, 1, 8192)
    assert (found["complete"], [row["read_bytes"] for row in found["processes"]]) == (False, [30, 10])
    unknown = (replace(accounts[0], rchar=None), accounts[1])
    found = io_metrics.analyse(replace(one, events=replace(one.events, accounts=unknown)))["untraced"]
    assert (found["why"], found["read_bytes"], found["read_share"], found["write_bytes"]) == (None, None, None, 0)
    found = io_metrics.analyse(one)["untraced"]
    assert (found["why"], found["read_bytes"]) == ("the recording does not contain the kernel's I/O counters", None)


def test_every_definition_is_one_plain_sentence_or_two() -> None:
    for name, text in io_metrics.CAPTIONS.items():
        assert text.isascii(), name
        assert text.endswith("."), name
        assert len(text) < 250, name
