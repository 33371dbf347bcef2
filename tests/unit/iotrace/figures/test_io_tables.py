"""Tables per file, rank and process, against loops over the calls."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median

import pandas as pd
import pytest
from io_events import Call, calls, examples, recording, table

from dlio_torch.iotrace.events.call_names import class_of
from dlio_torch.iotrace.events.recording import COUNTERS
from dlio_torch.iotrace.figures import access_order, io_tables


def figures(own: list[Call]) -> dict[str, object]:
    """What every table says of the calls of one row."""
    by_class = {kind: [call for call in own if class_of(call.op) == kind] for kind in ("open", "read", "write", "seek")}
    found: dict[str, object] = {
        "calls": len(own),
        "processes": len({(call.rank, call.pid) for call in own}),
        "opens": len(by_class["open"]),
        "reads": len(by_class["read"]),
        "writes": len(by_class["write"]),
        "seeks": len(by_class["seek"]),
        "failed": sum(call.bytes < 0 for kind in ("read", "write") for call in by_class[kind]),
        "io_s": len({at for call in own for at in range(call.start, call.end)}) * 1e-9,
        "summed_s": sum(call.end - call.start for call in own) * 1e-9,
        "first_ns": min(call.start for call in own),
        "last_ns": max(call.end for call in own),
    }
    for kind, name in (("read", "bytes_read"), ("write", "bytes_written")):
        sizes = [call.bytes for call in by_class[kind] if call.bytes >= 0]
        found[name] = sum(sizes)
        found[f"{kind}_mean_bytes"] = mean(sizes) if sizes else None
        found[f"{kind}_median_bytes"] = median(sizes) if sizes else None
    shares = access_order.shares(table(own))["all"]
    found["sequential"], found["consecutive"] = shares.sequential, shares.consecutive
    return found


def distinct(own: list[Call], kind: str) -> int | None:
    moved = [call for call in own if class_of(call.op) == kind and call.bytes > 0]
    if any(call.offset < 0 for call in moved):
        return None
    return len({at for call in moved for at in range(call.offset, call.offset + call.bytes)})


def check(row: dict[str, object], expected: dict[str, object]) -> None:
    for name, value in expected.items():
        assert (None if pd.isna(row[name]) else row[name]) == (None if value is None else pytest.approx(value)), name  # type: ignore[call-overload]


@examples(calls())
def test_files(made: list[Call]) -> None:
    found = io_tables.files(recording(table(made))).to_dict("records")
    assert len(found) == len({call.file for call in made})
    moved = [row["bytes_read"] + row["bytes_written"] for row in found]
    assert moved == sorted(moved, reverse=True)
    for row in found:
        own = [call for call in made if call.file == row["file"]]
        assert (row["layer"], row["source"]) == ("posix", "events")
        expected = figures(own) | {"ranks": len({call.rank for call in own})}
        read = distinct(own, "read")
        expected |= {"distinct_bytes_read": read, "distinct_bytes_written": distinct(own, "write")}
        expected["reuse"] = expected["bytes_read"] / read if read else None  # type: ignore[operator]
        check(row, expected)


@examples(calls())
def test_ranks_and_processes(made: list[Call]) -> None:
    one = recording(table(made))
    for row in io_tables.ranks(one).to_dict("records"):
        own = [call for call in made if call.rank == row["rank"]]
        check(row, figures(own) | {"files": len({call.file for call in own} - {None})})
    processes = io_tables.ranks(one, per="process").to_dict("records")
    assert [(row["rank"], row["pid"]) for row in processes] == sorted({(call.rank, call.pid) for call in made})
    for row in processes:
        assert row["role"] == f"role of {row['pid']}"
        check(row, figures([call for call in made if (call.rank, call.pid) == (row["rank"], row["pid"])]))


def test_what_a_table_is_per_must_be_named() -> None:
    with pytest.raises(ValueError, match="per='thread' is not a kind of row; it must be rank or process"):
        io_tables.ranks(recording(table([])), per="thread")  # type: ignore[arg-type]


def test_a_process_without_a_name() -> None:
    one = recording(table([Call()]))
    unnamed = replace(one, events=replace(one.events, processes=()))
    assert io_tables.ranks(unnamed, per="process")["role"].tolist() == [None]


def test_counters_fill_in_what_the_events_do_not_have() -> None:
    row = [-1, "posix", "/data/a", 8, 5, 0, 3, 50, 0, 1.0, 0.0, 0.5, 4, 0, 4, 0]
    alone = [1, "stdio", "/data/log", 1, 0, 2, 0, 0, 7, 0.0, 0.5, 0.0, -1, -1, -1, -1]
    counters = pd.DataFrame([row, alone], columns=list(COUNTERS))
    log = recording(table([Call(bytes=10)]), sees=frozenset({"read", "write"}), counters=counters)
    found = io_tables.files(log)
    assert found["source"].tolist() == ["events", "counters"]
    assert found["opens"].tolist() == [8, 1]
    assert found["seeks"].tolist() == [3, 0]
    assert found["reads"].tolist() == [1, 0]  # of the events, which are the better source
    assert io_tables.files(log, layers="posix")["file"].tolist() == ["/data/a"]
