from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.events.event_files import ENDED_EARLY
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.span_adder import span_adder
from dlio_torch.iotrace.recorder.spans import NULL, RECORD, Recorder


class Reads(Dataset[int]):
    """A data set whose every sample leaves one span."""

    def __init__(self, recorder: Recorder, length: int = 24) -> None:
        self.recorder = recorder
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        with self.recorder.span("read", file=f"file{index % 3}", offset=index, bytes=10):
            return index


def test_a_span_keeps_all_that_it_was_given(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=3)
    recorder.add("read", 1000, 2500, step=7, file="/data/a.h5", offset=1 << 40, bytes=4096)
    recorder.add("compute", 2500, 2500)
    table = read_events(tmp_path)
    assert table.skipped == ()
    pid, tid = os.getpid(), threading.get_native_id()
    assert table.frame.astype({"op": object, "file": object, "layer": object}).fillna("-").to_dict("records") == [
        {"rank": 3, "pid": pid, "tid": tid, "layer": "app", "op": "read", "file": "/data/a.h5", "offset": 1 << 40,
         "bytes": 4096, "start_ns": 1000, "end_ns": 2500, "step": 7},
        {"rank": 3, "pid": pid, "tid": tid, "layer": "app", "op": "compute", "file": "-", "offset": -1,
         "bytes": -1, "start_ns": 2500, "end_ns": 2500, "step": -1},
    ]  # fmt: skip
    (process,) = table.processes
    assert (process.rank, process.pid, process.role, process.start_method) == (3, pid, "trainer", None)
    assert process.threads == {tid: "MainThread"}


def test_a_context_measures_its_body_and_takes_late_values(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    before = time.perf_counter_ns()
    with recorder.span("read", step=1) as span:
        inside = time.perf_counter_ns()
        span.bytes, span.file, span.offset = 5, "f", 9
    after = time.perf_counter_ns()
    row = read_events(tmp_path).frame.iloc[0]
    assert before <= row.start_ns <= inside <= row.end_ns <= after
    assert (row.bytes, row.file, row.offset, row.step) == (5, "f", 9, 1)


def test_a_span_is_recorded_when_its_body_raises(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    with pytest.raises(KeyError), recorder.span("decode"):
        raise KeyError("no")
    assert read_events(tmp_path).frame["op"].tolist() == ["decode"]


@pytest.mark.parametrize("off", [NULL, Recorder("never-made", 0, enabled=False)])
def test_a_recorder_that_is_off_has_the_same_interface_and_writes_nothing(off: Recorder, tmp_path: Path) -> None:
    off.add("read", 1, 2, step=1, file="x", offset=0, bytes=1)
    with off.span("read", step=1, file="x") as span:
        span.bytes = 5
    with off.span("read") as other:
        assert not hasattr(other, "bytes")
    off.close()
    assert not pickle.loads(pickle.dumps(off)).enabled
    assert not Path("never-made").exists()
    assert not Path(os.devnull, "x").exists()


def test_many_records_fill_many_segments(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    count = 20_000
    for index in range(count):
        recorder.add("read", 1 + index, 2 + index, offset=index, file=f"{index % 100}")
    frame = read_events(tmp_path).frame
    assert frame["offset"].tolist() == list(range(count))
    assert [int(name) for name in frame["file"]] == [index % 100 for index in range(count)]
    (path,) = tmp_path.glob("*.spans")
    assert count * RECORD.size < path.stat().st_size <= 2 * count * RECORD.size + 2 * 12288


def test_threads_record_side_by_side_without_losing_any(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    threads, each = 8, 3000
    start = threading.Barrier(threads)
    tids: dict[int, int] = {}

    def work(number: int) -> None:
        start.wait()
        tids[number] = threading.get_native_id()
        for index in range(each):
            recorder.add(f"op{number}", 1, 2, step=index, file=f"{number}/{index % 50}")

    workers = [threading.Thread(target=work, args=(n,), name=f"reader {n}") for n in range(threads)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(switch)
    table = read_events(tmp_path)
    assert table.skipped == ()
    for number in range(threads):
        mine = table.frame[table.frame["op"] == f"op{number}"]
        assert sorted(mine["step"]) == list(range(each))
        assert set(mine["tid"]) == {tids[number]}
        assert {name.split("/")[0] for name in mine["file"].unique()} == {str(number)}
    assert set(table.processes[0].threads.values()) >= {f"reader {n}" for n in range(threads)}


def test_a_killed_process_leaves_its_spans(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from dlio_torch.iotrace.recorder.spans import Recorder\n"
        "recorder = Recorder(sys.argv[1], 0)\n"
        "for step in range(1000):\n"
        "    recorder.add('read', step + 1, step + 2, step=step, file=f'{step % 7}')\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
    table = read_events(tmp_path)
    assert table.frame["step"].tolist() == list(range(1000))
    assert set(table.frame["pid"]) == {child.pid}
    assert table.skipped == ()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_loader_workers_record_whatever_way_they_start(method: str, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=1)
    data = Reads(recorder)
    # Spans before the workers start: forked ones inherit open files and must not write into them.
    recorder.add("setup", 1, 2)
    loader: DataLoader[Any] = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method)
    for _ in loader:
        recorder.add("step", time.perf_counter_ns(), time.perf_counter_ns())
    table = read_events(tmp_path)
    assert table.skipped == ()
    reads = table.frame[table.frame["op"] == "read"]
    assert sorted(reads["offset"]) == list(range(24))
    assert set(table.frame["rank"]) == {1}
    roles = {process.role: process for process in table.processes}
    assert list(roles) == ["trainer", "loader worker 0", "loader worker 1"]
    assert roles["trainer"].pid == os.getpid()
    assert roles["loader worker 0"].start_method == roles["loader worker 1"].start_method == method
    by_pid = Counter(reads["pid"].tolist())
    assert by_pid == {roles["loader worker 0"].pid: 12, roles["loader worker 1"].pid: 12}
    steps = table.frame[table.frame["pid"] == os.getpid()]
    assert Counter(steps["op"].astype(object)) == {"setup": 1, "step": 6}
    assert len({process.clock for process in table.processes}) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_raw_fork_gets_its_own_files(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("parent", 1, 2)
    pid = os.fork()
    if pid == 0:
        recorder.add("child", 2, 3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    recorder.add("parent", 3, 4)
    frame = read_events(tmp_path).frame
    assert frame.groupby("op", observed=True)["pid"].unique().map(list).to_dict() == {
        "parent": [os.getpid()],
        "child": [pid],
    }


def test_names_may_hold_anything(tmp_path: Path) -> None:
    names = ["größe µ 日本", 'quote " and \\ and\nnewline', "\udcff undecodable", "", "x" * 5000]
    recorder = Recorder(tmp_path, 0)
    for index, name in enumerate(names):
        recorder.add(name or "empty", index + 1, index + 2, file=name)
    frame = read_events(tmp_path).frame
    # Bytes that are no text can be read, not encoded.
    assert frame["file"].tolist() == [printable(name) for name in names]
    assert frame["op"].tolist()[:3] == [printable(name) for name in names[:3]]


def test_after_close_a_span_opens_new_files(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("a", 1, 2, file="one")
    recorder.close()
    recorder.close()
    recorder.add("b", 2, 3, file="two")
    table = read_events(tmp_path)
    assert table.frame["op"].tolist() == ["a", "b"]
    assert table.frame["file"].tolist() == ["one", "two"]
    assert len(list(tmp_path.glob("*.spans"))) == 2
    assert [process.pid for process in table.processes] == [os.getpid()]


def test_a_pickled_recorder_carries_directory_rank_and_role(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 5, role="generator")
    recorder.add("write", 1, 2)
    copy = pickle.loads(pickle.dumps(recorder))
    copy.add("write", 2, 3)
    table = read_events(tmp_path)
    assert len(table.frame) == 2
    assert {(process.rank, process.role) for process in table.processes} == {(5, "generator")}


def test_nothing_is_written_before_the_first_span(tmp_path: Path) -> None:
    Recorder(tmp_path / "events", 0).close()
    assert not (tmp_path / "events").exists()


def test_a_directory_that_cannot_be_made_is_one_line_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(tmp_path / "file" / "events", 0)
    for _ in range(2):
        recorder.add("read", 1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"warning: .*file/events: Not a directory; .*trace\.spans=false; .* are missing", line)


def test_a_name_is_on_disk_before_its_record(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    recorder.add("read", 1, 2, file="a")
    (path,) = tmp_path.glob("*.names")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("name") for line in lines[1:]] == [None, "read", "a"]
    assert lines[0]["version"] == 1


def test_a_full_disk_is_one_line_and_not_a_bus_error(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from dlio_torch.iotrace.recorder.spans import Recorder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "recorder = Recorder(sys.argv[1], 0)\n"
        "for step in range(100_000):\n"
        "    recorder.add('read', step + 1, step + 2, step=step)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    (message,) = done.stderr.splitlines()
    assert "File too large" in message
    assert "set trace.spans=false" in message
    table = read_events(tmp_path)
    assert 1000 < len(table.frame) < 100_000
    assert table.frame["step"].tolist() == list(range(len(table.frame)))
    assert [one.reason for one in table.skipped] == [ENDED_EARLY]


def test_a_limit_of_a_process_ends_its_spans_and_is_named(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=0, limit_bytes=100_000)
    for number in range(10_000):
        recorder.add("read", number + 1, number + 2)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 48_000 < size <= 100_000
    table = read_events(tmp_path)
    assert 1000 < len(table.frame) < 3000
    assert [skipped.reason for skipped in table.skipped] == [ENDED_EARLY]


def test_an_adder_records_as_add_does(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=0)
    add = span_adder(recorder, "sample", "dataset 0")
    for number in range(5000):
        add(number + 1, number + 2, number % 7, number)
    recorder.enabled = False
    add(1, 2, 3, 4)
    frame = read_events(tmp_path).frame
    assert frame["offset"].tolist() == list(range(5000))
    assert set(frame["op"]) == {"sample"}
    assert set(frame["file"]) == {"dataset 0"}
    assert set(frame["bytes"]) == {-1}
