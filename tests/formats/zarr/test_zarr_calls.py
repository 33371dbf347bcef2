"""Zarr: our system calls on the files of a store are those of plain zarr-python, whatever stays open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls_by_file import below, calls_by_file
from straced import needs_strace

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")

REOPEN = ("none", "array", "file")

PROGRAM = """
import sys
from pathlib import Path
import zarr
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.zarr.options import ZarrConfig

RUNS = [(3, 1), (0, 1), (19, 1), (5, 6)]

def pick(array, first, count):
    return array[first] if count == 1 else array[first : first + count]

def theirs(reopen, path):
    if reopen == "file":
        zarr.open_group(path, mode="r")["images"].shape[0]
        for run in RUNS:
            group = zarr.open_group(path, mode="r")
            pick(group["images"], *run), pick(group["labels"], *run)
        return
    group = zarr.open_group(path, mode="r")
    if reopen == "array":
        group["images"].shape[0]
        for run in RUNS:
            pick(group["images"], *run), pick(group["labels"], *run)
        return
    images, labels = group["images"], group["labels"]
    for run in RUNS:
        pick(images, *run), pick(labels, *run)

fields = [FieldConfig("images", "float32", [40, 10]), FieldConfig("labels", "int64", [])]
for reopen in ("none", "array", "file"):
    theirs(reopen, f"theirs_{reopen}")
    fmt = create(DatasetConfig(format="zarr", fields=fields, zarr=ZarrConfig(reopen=reopen)), 1)
    reader = fmt.open(Path(f"ours_{reopen}"))
    for first, count in RUNS:
        reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0)
    reader.close()
"""

STORES: dict[str, tuple[dict[str, Any], int]] = {
    "chunks": ({"chunks": (2, 40, 5)}, 3),
    "shards": ({"chunks": (1, 40, 10), "shards": (5, 40, 10)}, 3),
    "version 2": ({"chunks": (4, 40, 10)}, 2),
}


@needs_strace
@pytest.mark.parametrize("case", STORES)
def test_system_calls_are_those_of_zarr(case: str, tmp_path: Path) -> None:
    options, version = STORES[case]
    folder = (tmp_path / "stores").resolve()
    first, *others = [folder / f"{who}_{reopen}" for who in ("theirs", "ours") for reopen in REOPEN]
    group = zarr.open_group(str(first), mode="w", zarr_format=version)
    images = np.random.default_rng(1).standard_normal((20, 40, 10)).astype("f4")
    group.create_array("images", shape=images.shape, dtype="f4", **options)[:] = images
    group.create_array("labels", shape=(20,), chunks=(7,), dtype="i8")[:] = np.arange(20)
    for other in others:
        shutil.copytree(first, other)
    calls = calls_by_file(PROGRAM, folder)
    amounts = []
    for reopen in REOPEN:
        plain, got = below(calls, f"theirs_{reopen}"), below(calls, f"ours_{reopen}")
        assert got == plain
        assert any("images/" in name and ".json" not in name for name in got)
        amounts.append(sum(map(len, got.values())))
    assert amounts == sorted(set(amounts))  # each way opens more than the one before
