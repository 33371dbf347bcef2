"""Measures the memory of the sample index and the sample order: bytes per sample or file."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.file_names import Names
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec, StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan

BATCH = 32


def memory(make: Callable[[], Any]) -> tuple[int, int]:
    """Bytes of Python's and NumPy's memory that the result keeps, and the peak while it was created."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        size, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return size, peak


def generated(count: int) -> Manifest:
    """The manifest of one-sample files, as ``generated_manifests`` makes it: all files are alike."""
    return Manifest("train", 0, FileCounts([1], count), Path("data"), None, ".npz")


def existing(names: Sequence[str], counts: Sequence[int]) -> Manifest:
    """The manifest of files of any names and numbers of samples, as ``existing_manifest`` makes it."""
    return Manifest("train", 0, FileCounts(counts), Path("data"), Names(names), ".npz")


def epoch(order: Any, count: int) -> tuple[BatchSampler, Any]:
    """A sampler of ``count`` samples in its first epoch, of which a batch was taken."""
    sampler = BatchSampler(SamplerSpec(batch_size=BATCH, order=order, seed=1), num_samples=count)
    sampler.set_epoch(0)
    batches = iter(sampler)
    next(batches)
    return sampler, batches


def stream(count: int) -> StreamPlan:
    """The plan of a stream of one-sample files."""
    spec = StreamSpec(order="shuffled", batch_size=BATCH, seed=1)
    return StreamPlan(generated(count).counts(), spec)


def located(count: int) -> Any:
    """Files and rows of the samples of a shuffled epoch, one batch at a time."""
    manifest, (_, batches) = generated(count), epoch("shuffled", count)
    for _ in range(2):
        found = manifest.locate_all(np.asarray(next(batches), np.int64))
    return found


INDEXES: dict[str, Callable[[int], Any]] = {
    "manifest, generated": generated,
    "sampler, in order": lambda count: epoch("sequential", count),
    "sampler, shuffled": lambda count: epoch("shuffled", count),
    "batches located": located,
    "stream of files, shuffled": stream,
}
"""By name; each takes the number of samples."""
