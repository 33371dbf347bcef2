"""A Zarr store of one's own in two commands: the samples are right, the bytes those that strace sees of zarr alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from calls_by_file import below, calls_by_file
from own_data import command, summary_of
from strace import READS, need_strace

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")

SAMPLES = 96  # 3 batches of 32

READ = """
import zarr
for worker in range(2):
    group = zarr.open_group("own.zarr", mode="r")
    images, labels = group["images"], group["labels"]
for i in range(96):
    images[i], labels[i]
"""


def test_a_store_that_zarr_wrote(tmp_path: Path) -> None:
    need_strace()
    folder = (tmp_path / "own").resolve()
    group = zarr.open_group(str(folder / "own.zarr"), mode="w")
    images = np.random.default_rng(1).integers(0, 256, (SAMPLES, 24, 24, 3), np.uint8)
    group.create_array("images", shape=images.shape, chunks=(1, 24, 24, 3), dtype="u1", compressors=None)[:] = images
    group.create_array("labels", shape=(SAMPLES,), chunks=(16,), shards=(48,), dtype="i8")[:] = np.arange(SAMPLES)
    group.create_array("class_names", shape=(10,), dtype="i4")[:] = 1
    shown = json.loads(command("inspect", "own.zarr", "--json", cwd=folder))
    assert (shown["format"], shown["samples"], shown["questions"]) == ("zarr", SAMPLES, [])
    options = ("loader.num_workers=2", "trace.posix=true", "output.dir=run")
    command("dataset.path=own.zarr", *options, cwd=folder)
    summary = summary_of(folder)
    assert summary["reads"]["samples"] == SAMPLES
    (rank,) = summary["posix"]["ranks"]
    plain = [call for calls in below(calls_by_file(READ, folder), "own.zarr").values() for call in calls]
    reads = [result for name, _, result in plain if name in READS]
    assert (rank["reads"], rank["bytes_read"]) == (len(reads), sum(reads))
