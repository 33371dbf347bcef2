"""Runs with one known bottleneck, by construction, for :mod:`benchmarks.advice_check`."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.environment.cores import whole_cores
from dlio_torch.formats.hdf5 import reader as hdf5_reader

COMMON = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "storage.limits=off", "cache=as_is",
    "train.epochs=1", "train.batch_size=4", "train.warmup_steps=4", "dataset.num_files=1",
)  # fmt: skip
MEMORY = "dataset=synthetic"


@dataclass(frozen=True)
class Case:
    """One emulated run: its options and its bottleneck.

    Attributes:
        name: of the case.
        options: arguments beside :data:`COMMON`.
        steps: of a run.
        edge: of a sample, a square image of float32.
        altered: what is emulated meanwhile.
    """

    name: str
    options: tuple[str, ...]
    steps: int = 60
    edge: int = 16
    altered: Callable[[], AbstractContextManager[object]] = nullcontext

    def arguments(self) -> list[str]:
        shape = f"dataset.fields.0.shape=[{self.edge},{self.edge}]"
        return [*COMMON, *self.options, shape, f"dataset.samples_per_file={4 * self.steps}"]


def naps(*seconds: float) -> AbstractContextManager[object]:
    """Preprocessing of a batch that sleeps instead of working, for the given times in turn."""
    times = itertools.cycle(seconds)

    def burn(self: Preprocess, samples: int) -> int:
        time.sleep(next(times))
        return 0

    return mock.patch.object(Preprocess, "burn", burn)


def slow_device(seconds_per_sample: float) -> AbstractContextManager[object]:
    """Emulates reads of samples from a device that serves one request at a time."""
    device, read = multiprocessing.Lock(), hdf5_reader.Hdf5Reader.read

    def slow(self: Any, first: int, count: int, *where: Any) -> None:
        with device:
            time.sleep(seconds_per_sample * count)
        read(self, first, count, *where)

    return mock.patch.object(hdf5_reader.Hdf5Reader, "read", slow)


def cases() -> Iterator[Case]:
    one, step = "loader.num_workers=1", "compute.step_s=10ms"
    burns = (MEMORY, "compute.preprocess_s=5ms")  # 20 ms a batch
    sleeps = (MEMORY, "compute.preprocess_s=1ms")  # how long is said by naps
    yield Case("sleeping, no worker", (*sleeps, step), altered=lambda: naps(0.03))
    yield Case("sleeping, a worker", (*sleeps, step, one), altered=lambda: naps(0.03))
    yield Case("sleeping, a thread", (*sleeps, step, "loader.read_threads=1"), altered=lambda: naps(0.03))
    yield Case(
        "uneven, a worker",
        (*sleeps, "compute.step_s=20ms", one, "loader.prefetch_factor=1"),
        altered=lambda: naps(*[0.002] * 7, 0.09),
    )
    yield Case("CPU, no worker", (*burns, step))
    yield Case("CPU, a worker", (*burns, step, one))
    yield Case("CPU, a thread", (*burns, step, "loader.read_threads=1"))
    yield Case("CPU, too many workers", (*burns, "compute.step_s=1ms", f"loader.num_workers={4 * whole_cores()}"))
    large = (MEMORY, "compute.step_s=5ms", "loader.num_workers=2")
    yield Case("hand-over, 16 MiB", large, edge=1024)
    yield Case("hand-over, 64 MiB", large, steps=40, edge=2048)
    yield Case("slow device, no worker", (step,), altered=lambda: slow_device(0.005))
    yield Case("slow device, a worker", (step, one), altered=lambda: slow_device(0.005))
