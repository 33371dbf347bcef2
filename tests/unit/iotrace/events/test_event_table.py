from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlio_torch.iotrace.events.event_table import COLUMNS, read_events
from dlio_torch.iotrace.events.span_format import HEADER, RECORD
from dlio_torch.iotrace.recorder.spans import Recorder


def record(directory: Path, rank: int = 0, count: int = 10) -> Path:
    """A span file with ``count`` records at 1, 2, ..."""
    recorder = Recorder(directory, rank)
    for index in range(count):
        recorder.add("read", 1 + index, 2 + index, file=f"f{index % 2}", step=index)
    recorder.close()
    return max(directory.glob(f"rank{rank}-*.spans"), key=lambda path: path.stat().st_mtime_ns)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def row(index: int) -> int:
    return HEADER.size + index * RECORD.size


def test_an_empty_or_missing_folder_gives_an_empty_table(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        table = read_events(folder)
        assert tuple(table.frame.columns) == COLUMNS
        assert len(table.frame) == len(table.processes) == len(table.skipped) == 0


def test_names_are_codes_not_one_object_per_row(tmp_path: Path) -> None:
    record(tmp_path, 0)
    record(tmp_path, 1)
    table = read_events(tmp_path)
    dtypes = table.frame.dtypes.astype(str).to_dict()
    assert dtypes == {
        "rank": "int32", "pid": "int32", "tid": "int32", "layer": "category", "op": "category", "file": "category",
        "offset": "int64", "bytes": "int64", "start_ns": "int64", "end_ns": "int64", "step": "int32",
    }  # fmt: skip
    assert table.frame["file"].cat.categories.tolist() == ["f0", "f1"]
    assert table.frame["start_ns"].is_monotonic_increasing
    assert table.frame["rank"].value_counts().to_dict() == {0: 10, 1: 10}


def test_one_rank_can_be_read_alone(tmp_path: Path) -> None:
    record(tmp_path, 1)
    record(tmp_path, 11)
    assert set(read_events(tmp_path, rank=1).frame["rank"]) == {1}


@pytest.mark.parametrize(
    ("damage", "kept", "reason"),
    [
        (lambda path: os.truncate(path, 20), 0, "the file ends within its header, after 20 bytes"),
        (lambda path: os.truncate(path, 0), 0, "the file ends within its header, after 0 bytes"),
        (lambda path: overwrite(path, 0, b"NOTSPANS"), 0, "the file is not a span file"),
        (lambda path: overwrite(path, 0, bytes(8)), 0, "the header is empty"),
        (
            lambda path: overwrite(path, 8, b"\x63"),
            0,
            "the file has format version 99, but this program reads version 1",
        ),
        (lambda path: path.with_suffix(".names").unlink(), 0, "the table of names is missing"),
        (lambda path: os.truncate(path.with_suffix(".names"), 0), 0, "does not say to which process it belongs"),
        (
            lambda path: path.with_suffix(".names").write_bytes(os.urandom(500)),
            0,
            "does not say to which process it belongs",
        ),
        (lambda path: os.truncate(path, row(4) + 9), 4, "the last record is cut off"),
        (lambda path: overwrite(path, row(3) + 44, bytes(4)), 9, "1 records were cut short"),
        (lambda path: overwrite(path, row(3) + 44, b"\xff" * 4), 9, "1 records are damaged"),
        (lambda path: overwrite(path, row(3) + 36, b"\xff" * 4), 9, "1 records are damaged"),
        (lambda path: overwrite(path, row(3), b"\xff" * 8 * 2), 9, "1 records are damaged"),
    ],
)
def test_damage_is_named_and_the_rest_is_read(
    damage: Callable[[Path], object], kept: int, reason: str, tmp_path: Path
) -> None:
    path = record(tmp_path, 0)
    record(tmp_path, 1)
    damage(path)
    table = read_events(tmp_path)
    assert len(table.frame) == 10 + kept
    assert [(skipped.path, reason in skipped.reason) for skipped in table.skipped] == [(path, True)]


def test_records_whose_name_was_lost_are_left_out(tmp_path: Path) -> None:
    path = record(tmp_path, 0)
    names = path.with_suffix(".names")
    lines = names.read_bytes().splitlines(keepends=True)
    names.write_bytes(b"".join(lines[:-1]) + lines[-1][:5])  # f1 is the last name
    table = read_events(tmp_path)
    assert table.frame["file"].tolist() == ["f0"] * 5
    assert [skipped.reason for skipped in table.skipped] == [
        "the last line of the table of names is cut off",
        "5 records are damaged",
    ]


def test_a_damaged_line_in_the_middle_costs_only_its_name(tmp_path: Path) -> None:
    path = record(tmp_path, 0)
    names = path.with_suffix(".names")
    lines = names.read_bytes().splitlines(keepends=True)
    assert b'"f0"' in lines[-2]
    names.write_bytes(b"".join([*lines[:-2], b"\xff\xfe{]\n", lines[-1]]))
    table = read_events(tmp_path)
    assert table.frame["file"].tolist() == ["f1"] * 5
    assert [skipped.reason for skipped in table.skipped] == [
        "1 lines of the table of names are damaged",
        "5 records are damaged",
    ]


def test_random_bytes_never_crash_the_reader(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    for trial in range(30):
        folder = tmp_path / str(trial)
        path = record(folder, 0)
        data = bytearray(path.read_bytes()[: row(12)])
        for at in generator.integers(0, len(data), 40):
            data[at] = generator.integers(256)
        path.write_bytes(data)
        table = read_events(folder)
        assert len(table.frame) <= 12
        assert (table.frame["end_ns"] >= table.frame["start_ns"]).all()


def test_clocks_of_other_machines_are_moved_onto_the_first(tmp_path: Path) -> None:
    record(tmp_path, 0, count=1)
    names = record(tmp_path, 1, count=1).with_suffix(".names")
    mine = read_events(tmp_path, rank=0).processes[0]
    head, *rest = names.read_text().splitlines()
    moved = json.loads(head)
    moved["clock"] = "another machine"
    # The other machine booted 500 ns later: its monotonic clock shows 500 less at the same moment.
    moved["monotonic_ns"], moved["time_ns"] = mine.monotonic_ns - 500, mine.time_ns
    names.write_text("\n".join([json.dumps(moved), *rest, ""]))
    table = read_events(tmp_path)
    assert table.frame.set_index("rank")["start_ns"].to_dict() == {0: 1, 1: 501}
    assert (table.anchor_monotonic_ns, table.anchor_time_ns) == (mine.monotonic_ns, mine.time_ns)


def test_processes_are_listed_by_rank_trainer_first(tmp_path: Path) -> None:
    for rank, role in [(1, "trainer"), (0, "loader worker 10"), (0, "loader worker 2"), (0, "trainer")]:
        recorder = Recorder(tmp_path, rank, role=role)
        recorder.add("x", 1, 2)
        names = max(tmp_path.glob("*.names"), key=lambda path: path.stat().st_mtime_ns)
        # One process writes all of these; give each its own process id.
        names.write_text(names.read_text().replace(f'"pid":{os.getpid()}', f'"pid":{len(list(tmp_path.iterdir()))}'))
    roles = [(process.rank, process.role) for process in read_events(tmp_path).processes]
    assert roles == [(0, "trainer"), (0, "loader worker 2"), (0, "loader worker 10"), (1, "trainer")]


POSIX_HEADER = struct.Struct("<8sIIiiqqq2I4q3q5q5q48x")


def record_calls(directory: Path, *, pid: int, rank: int = 0, number: str = "", flags: int = 0, count: int = 3) -> Path:
    """A file as the preloaded library writes it, with reads at 11, 12, ... and room for more."""
    directory.mkdir(exist_ok=True)
    path = directory / f"rank{rank}-{pid}{number}.posix"
    start, end = (100, 0, -1, 50, 0), (400, 20, -1, 90, 2)
    head = (b"DLIOPOSX", 1, RECORD.size, rank, pid, 5, 1000, POSIX_HEADER.size)
    content = POSIX_HEADER.pack(*head, flags, 1, 99, 7, 0, 4, 250, 20, 8192, *start, *end)
    for index in range(count):
        content += RECORD.pack(11 + index, 12 + index, 100 * index, 10, -1, 2, pid + 1, 1)
    path.write_bytes(content + bytes(5 * RECORD.size))
    head_line = {
        "rank": rank, "pid": pid, "role": "python", "start_method": None, "host": "h", "clock": "c",
        "monotonic_ns": 5, "time_ns": 1000,
    }  # fmt: skip
    lines = [head_line, {"tid": pid, "thread": "python"}, {"id": 1, "name": "read"}, {"id": 2, "name": "/data/f"}]
    path.with_suffix(".posix.names").write_bytes(b"\n".join(json.dumps(line).encode() for line in lines) + b"\n\0\0")
    return path


def test_calls_and_spans_of_a_process_are_one(tmp_path: Path) -> None:
    record(tmp_path, 0, count=1)
    record_calls(tmp_path, pid=os.getpid())
    record_calls(tmp_path, pid=os.getpid(), number="-2")  # of a program that the process executed
    record_calls(tmp_path, pid=7)
    table = read_events(tmp_path)
    assert table.skipped == ()
    assert [(process.pid, process.role) for process in table.processes] == [(os.getpid(), "trainer"), (7, "python")]
    assert table.processes[0].threads[os.getpid()] == "MainThread"
    assert table.frame["layer"].value_counts().to_dict() == {"posix": 9, "app": 1}
    calls = table.frame[table.frame["pid"] == 7]
    assert calls[["op", "file", "offset", "bytes", "step", "tid"]].to_numpy().tolist() == [
        ["read", "/data/f", 100 * index, 10, -1, 8] for index in range(3)
    ]
    mine, other = table.accounts
    assert (other.pid, other.rchar, other.wchar, other.read_bytes, other.write_bytes) == (7, 300, 20, None, 40)
    assert (other.traced_read_bytes, other.mapped_bytes, other.major_faults, other.dropped) == (250, 8192, 2, 4)
    assert (mine.pid, mine.rchar, mine.read_bytes, mine.complete) == (os.getpid(), 600, None, True)


@pytest.mark.parametrize(
    ("damage", "kept", "reason"),
    [
        (lambda path: os.truncate(path, 100), 0, "the file ends within its header, after 100 bytes"),
        (lambda path: overwrite(path, 0, bytes(8)), 0, "the header is empty"),
        (lambda path: overwrite(path, 0, b"DLIOSPAN"), 0, "the file does not contain recorded calls"),
        (
            lambda path: overwrite(path, 8, b"\x63"),
            0,
            "the file has format version 99, but this program reads version 1",
        ),
        (lambda path: overwrite(path, 40, b"\x63"), 0, "the header of the file is damaged"),
        (lambda path: path.with_suffix(".posix.names").unlink(), 0, "the table of names is missing"),
        (lambda path: os.truncate(path, POSIX_HEADER.size + 50), 1, "the last record is cut off"),
        (lambda path: overwrite(path, POSIX_HEADER.size + 44, b"\xff"), 2, "1 records are damaged"),
        (lambda path: overwrite(path, 48, b"\x01"), 3, "limit of 99 bytes per process was reached: 4 later calls"),
        (lambda path: overwrite(path, 48, b"\x02"), 3, "the event file could not grow"),
    ],
)
def test_damage_of_recorded_calls_is_named(
    damage: Callable[[Path], object], kept: int, reason: str, tmp_path: Path
) -> None:
    path = record_calls(tmp_path, pid=7)
    damage(path)
    table = read_events(tmp_path)
    assert len(table.frame) == kept
    assert [(skipped.path, reason in skipped.reason) for skipped in table.skipped] == [(path, True)]
