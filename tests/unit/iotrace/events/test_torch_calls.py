"""The reader of what a recorded program asked torch for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlio_torch.iotrace.events.torch_calls import (
    BATCH_COLUMNS,
    BatchArray,
    LoaderEpoch,
    SavedState,
    TorchCalls,
    read_torch_calls,
)
from dlio_torch.iotrace.recorder.torch_hook.facts_file import FactsFile

PROCESS = {
    "kind": "process", "pid": 7, "rank": 0, "parent_pid": 1, "role": "trainer", "python": "3.11.7", "torch": "2.13.0",
    "torchdata": None, "world_size": None, "launcher": None, "loader": None, "worker": None,
}  # fmt: skip
LOADER = {
    "kind": "loader", "id": 0, "class": "torch.utils.data.dataloader.DataLoader", "dataset": 0, "batch_size": 2,
    "drop_last": False, "sampler": {"class": "torch.utils.data.sampler.RandomSampler", "replacement": False},
    "batch_sampler": "torch.utils.data.sampler.BatchSampler", "num_workers": 2, "prefetch_factor": 2,
    "pin_memory": False, "start_method": "fork", "persistent_workers": False, "in_order": True, "timeout_s": 0,
    "collate": "torch.utils.data._utils.collate.default_collate",
}  # fmt: skip
FACTS: list[dict[str, Any]] = [
    PROCESS,
    {"kind": "dataset", "id": 0, "class": "__main__.Images", "style": "map", "length": 5},
    LOADER,
    {"kind": "epoch", "loader": 0, "epoch": 0, "start_ns": 100},
    {"kind": "indices", "loader": 0, "epoch": 0, "batch": 0, "indices": [4, 2]},
    {"kind": "arrays", "loader": 0, "batch": 0, "arrays": [{"path": "image", "shape": [2, 3], "dtype": "float32"}]},
    {"kind": "indices", "loader": 0, "epoch": 0, "batch": 1, "indices": [0]},
    {"kind": "epoch_end", "loader": 0, "epoch": 0, "end_ns": 900, "batches": 2, "exhausted": True},
    {"kind": "epoch", "loader": 0, "epoch": 1, "start_ns": 950},
    {"kind": "save", "call": "torch.save", "path": "/s.pt", "start_ns": 910, "end_ns": 940, "tensors": 3, "bytes": 36},
    {"kind": "note", "text": "something is missing"},
]


def written(directory: Path, facts: list[dict[str, Any]]) -> tuple[Path, TorchCalls]:
    file = FactsFile(directory, rank=0, limit_bytes=1 << 20)
    for fact in facts:
        file.write(fact)
    (path,) = directory.glob("rank0-*.torch")
    return path, read_torch_calls(directory)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path, calls = written(tmp_path, FACTS)
    pid = int(path.stem.split("-")[1])
    assert [(process.pid, process.role) for process in calls.processes] == [(pid, "trainer")]
    assert calls.datasets[0].class_name == "__main__.Images"
    assert calls.datasets[0].length == 5
    assert calls.loaders[0].sampler["replacement"] is False
    assert calls.epochs == (LoaderEpoch(0, pid, 0, 0, 100, 900, 2, True), LoaderEpoch(0, pid, 0, 1, 950))
    assert calls.batches.to_numpy().tolist() == [
        [0, pid, 0, 0, 0, 0, 4],
        [0, pid, 0, 0, 0, 1, 2],
        [0, pid, 0, 0, 1, 0, 0],
    ]
    assert calls.arrays[0].arrays == (BatchArray("image", (2, 3), "float32"),)
    assert calls.saves == (SavedState(0, pid, "save", "torch.save", "/s.pt", 910, 940, 3, 36),)
    assert calls.notes == ("something is missing",)


def test_lines_longer_than_a_part_of_the_file_are_whole(tmp_path: Path) -> None:
    batches = [list(range(start, start + 9000)) for start in range(0, 90000, 9000)]
    facts = [
        {"kind": "indices", "loader": 0, "epoch": 0, "batch": number, "indices": batch}
        for number, batch in enumerate(batches)
    ]
    _, calls = written(tmp_path, facts)
    assert calls.batches["index"].tolist() == list(range(90000))
    assert calls.notes == ()


def test_keys_that_are_no_numbers_stay_texts(tmp_path: Path) -> None:
    fact = {"kind": "indices", "loader": 0, "epoch": 0, "batch": 0, "indices": [3, "'a'"]}
    _, calls = written(tmp_path, [fact])
    assert calls.batches["index"].tolist() == [3, "'a'"]


def test_damaged_lines_cost_only_themselves(tmp_path: Path) -> None:
    path, _ = written(tmp_path, FACTS)
    lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    lines[2] = b'{"kind":"loader"}'
    lines[4] = b"\xff\xfe{"
    path.write_bytes(b"\n".join([*lines[:-1], json.dumps(FACTS[4]).encode()[:20]]))
    calls = read_torch_calls(tmp_path)
    assert calls.loaders == ()
    assert calls.batches["index"].tolist() == [0]
    assert calls.notes == (
        f"{path.name}: the last line is cut off",
        "something is missing",
        f"{path.name}: 2 lines are damaged",
    )


def test_a_folder_without_such_files_is_empty(tmp_path: Path) -> None:
    calls = read_torch_calls(tmp_path / "missing")
    assert calls.processes == ()
    assert list(calls.batches.columns) == list(BATCH_COLUMNS)


def test_a_full_file_is_an_error_and_keeps_what_it_has(tmp_path: Path) -> None:
    file = FactsFile(tmp_path, rank=3, limit_bytes=1 << 16)
    file.write(FACTS[-1])
    with pytest.raises(OSError, match="limit"):
        file.write({"kind": "note", "text": "x" * (1 << 16)})
    (path,) = tmp_path.glob("rank3-*.torch")
    assert 0 < path.stat().st_size < 1 << 16
    assert read_torch_calls(tmp_path).notes == ("something is missing",)
