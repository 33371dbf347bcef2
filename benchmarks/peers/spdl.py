"""SPDL: a pipeline of threads over a Python function, which reads the raw file, as SPDL has no array format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from spdl.pipeline import PipelineBuilder

from benchmarks.peers.work import PeerWork, Start, order

THREADS = 2


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    """Returns the raw file, which needs no conversion."""


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    def read_sample(number: int) -> Any:
        return _read(descriptor, [number], work)

    def read_batch(numbers: list[int]) -> Any:
        return _read(descriptor, numbers, work)

    def epoch() -> Iterator[Any]:
        builder = PipelineBuilder()
        if variant["by"] == "batch":
            builder.add_source(iter(order(work))).pipe(read_batch, concurrency=THREADS)
        else:
            numbers = (number for batch in order(work) for number in batch)
            builder.add_source(numbers).pipe(read_sample, concurrency=THREADS).aggregate(work.batch).pipe(torch.cat)
        pipeline = builder.add_sink(2).build(num_threads=THREADS)
        with pipeline.auto_stop():
            yield from pipeline

    descriptor = os.open(raw, os.O_RDONLY)
    return epoch


def _read(descriptor: int, numbers: list[int], work: PeerWork) -> torch.Tensor:
    data = np.empty((len(numbers), work.size // 4), np.float32)
    for at, number in enumerate(numbers):
        os.preadv(descriptor, [data[at].view(np.uint8)], number * work.size)
    return torch.from_numpy(data)
