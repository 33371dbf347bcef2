"""The benchmark of checkpoints saves equal bytes by DLIO's calls and by ours, and names what is not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.checkpoints import CONSOLIDATION, DCP, DESCRIBED, PEER, PLAIN, QUICK, STREAM, VARIANTS, WEIGHTS
from benchmarks.harness import command
from benchmarks.saving.consolidation import WAYS, way_name
from benchmarks.saving.own_time import OwnTime
from dlio_torch.checkpoint.job.saved_state import job_bytes
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.files.atomic_file import fsync_path

REPEATED = 60 * QUICK.hidden_size
"""Bytes that DLIO adds to the optimizer's state of a rank."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("checkpoints")
    words = ["checkpoints", "--quick", "--directory", str(folder), "--output", str(folder)]
    assert command.main(words) == 0
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
    found: dict[str, Any] = json.loads((folder / "checkpoints.json").read_text(encoding="utf-8"))
    return found


def test_ways_save_the_same_bytes_as_dlio(record: dict[str, Any]) -> None:
    rows = {row["way"]: row for row in record["tables"]["checkpoints"]}
    size = job_bytes(QUICK)
    assert {PEER, STREAM, "torch_save, state_bytes", "files"} <= set(rows)
    assert rows[STREAM]["bytes"] == size + REPEATED
    assert rows["files"]["bytes"] == size
    if WEIGHTS in rows:  # the nearest number of layers
        assert 0.9 * size < rows.pop(WEIGHTS)["bytes"] < 1.1 * size
    for row in rows.values():
        assert 0.999 * size <= row["bytes"] <= 1.05 * (size + REPEATED), row
    assert {name: rows[name]["files"] for name in (PEER, STREAM, "files")} == {PEER: 2, STREAM: 2, "files": 1}
    assert rows[PEER]["to DLIO"] == [1, 1, 1]


def test_each_of_our_ways_says_its_share(record: dict[str, Any]) -> None:
    for row in record["tables"]["checkpoints"]:
        if row["way"] in (PEER, STREAM):
            assert row["own (ms)"] is row["own share"] is None
        else:
            assert 0 < row["own share"] < 1
        assert row["serialising"][0] >= 0


def test_a_layout_that_is_not_there_is_named_with_those_that_are(record: dict[str, Any]) -> None:
    missing = {(part["way"], part["where"]): part["why"] for part in record["missing"]}
    rows = {row["way"] for row in record["tables"]["checkpoints"]}
    for name in DESCRIBED:
        if name in BUILTIN:
            assert name in rows or missing[name, "checkpoints"]
        else:
            assert missing[name, "checkpoints"] == f"the layout {name} is not one of {', '.join(BUILTIN)}"
    for table, ways in VARIANTS.items():
        measured = {row[table] for row in record["tables"].get(table.replace(" ", "_"), [])}
        for way in ways:
            assert (way in measured) != ((way, table) in missing)


def test_dcp_is_compared_with_the_same_save_without_this_tool(record: dict[str, Any]) -> None:
    rows = {row[DCP]: row for row in record["tables"].get(DCP, [])}
    if DCP not in rows:
        pytest.skip("the layout dcp cannot be measured here")
    assert abs(rows[DCP]["bytes"] - rows[PLAIN]["bytes"]) < 100  # names of classes and folders
    assert rows[PLAIN][f"durable to {PLAIN}"] == rows[PEER][f"durable to {PEER}"] == [1, 1, 1]


def test_consolidation_is_measured_by_ranks_and_threads(record: dict[str, Any]) -> None:
    rows = record["tables"].get(CONSOLIDATION)
    if rows is None:
        pytest.skip(next(part["why"] for part in record["missing"] if part["where"] == CONSOLIDATION))
    assert [row["ranks and threads"] for row in rows] == [way_name(*way) for way in WAYS]
    assert all(row["consolidation (s)"][0] > 0 for row in rows)
    assert rows[0][f"{way_name(*WAYS[0])} to this"] == [1, 1, 1]


def test_own_time_is_what_is_left_of_calls_of_libraries_and_of_the_system(tmp_path: Path) -> None:
    def save() -> None:
        for number in range(3):
            descriptor = os.open(tmp_path / f"{number}", os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, bytes(1000))
            os.close(descriptor)
        torch.save({"a": torch.zeros(10)}, tmp_path / "state.pt")

    own = OwnTime()
    own.measure(save)
    assert own.outside >= 3 * 3 + 2  # the calls of the system, torch.zeros and torch.save
    assert own.own_s > 0
    assert own.outside_s > 0
    own.measure(lambda: sum(range(10)))
    assert own.outside == 0
    assert own.own_s > own.outside_s == 0


def test_a_function_of_the_tool_that_a_library_calls_is_own_time(tmp_path: Path) -> None:
    module, own = torch.nn.Module(), OwnTime()
    own.measure(lambda: module.apply(lambda _: os.stat(tmp_path)))
    assert own.outside == 1  # a function of this test belongs to torch, which calls it
    own.measure(lambda: module.apply(lambda _: fsync_path(tmp_path)))
    assert own.outside >= 1 + 3  # open, fsync and close by the tool
