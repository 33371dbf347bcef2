"""The samples that every loader reads: their size, batch size and order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.rounds import Figures, Stopwatch, Unavailable
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.storage.local.eviction import evict, read_through, why_cached
from dlio_torch.storage.local.page_cache import cached_share

LARGEST_BATCH = 64 << 20
THREADS = 2
PAUSES_S = (0.0, 0.05, 0.2, 1.0)
"""Before each attempt to take a file out of the page cache: others may be at its pages for a moment."""

_STILL_CACHED = 0.03


@dataclass(frozen=True)
class Work:
    """One epoch of samples.

    Attributes:
        size: bytes of a sample, float32, a multiple of 4.
        batch: samples of a batch.
        samples: of the epoch, whole batches.
        order: ``sequential`` or ``shuffled``.
        cold: each measurement begins with files that are not in the page cache.
    """

    size: int
    batch: int
    samples: int
    order: str
    cold: bool

    @classmethod
    def of(cls, size: int, total: int, order: str, *, cold: bool) -> Work:
        """An epoch of about ``total`` bytes, at least two batches per thread, batches of 32 samples or 64 MiB."""
        batch = max(1, min(32, LARGEST_BATCH // size))
        return cls(size, batch, max(2 * THREADS, total // size // batch) * batch, order, cold)

    @property
    def bytes(self) -> int:
        """Bytes of all samples."""
        return self.samples * self.size

    @property
    def batches(self) -> int:
        """Number of batches."""
        return self.samples // self.batch

    def sampler(self) -> BatchSampler:
        """Yields the sample numbers of each batch."""
        order: Any = self.order
        return BatchSampler(SamplerSpec(batch_size=self.batch, order=order, seed=1), num_samples=self.samples)


def write_raw(path: Path, work: Work) -> None:
    """Writes all samples, random bytes, one after the other."""
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        for first in range(0, work.samples, work.batch):
            file.write(rng.bytes(work.size * min(work.batch, work.samples - first)))


def _nothing() -> None:
    """Does nothing, for loaders that need no end."""


@dataclass
class Way:
    """A variant of the benchmark: a loader.

    Attributes:
        name: in the tables.
        measure: reads one epoch; gives ``bytes_per_s``, and ``cpu_s_per_byte`` of all processes that do it.
        files: what is to be taken out of the page cache before a cold measurement.
        close: ends it.
    """

    name: str
    measure: Callable[[], Figures]
    files: Sequence[Path] = ()
    close: Callable[[], None] = field(default=_nothing)


def figures(size: int, seconds: float, cpu_s: float) -> Figures:
    """Figures of reading this number of bytes."""
    return {"bytes_per_s": size / seconds, "cpu_s_per_byte": cpu_s / size}


def epoch(start: Callable[[], Iterable[Any]], work: Work) -> Figures:
    """Takes all batches of one epoch in this process; drops each when the next one is requested.

    Raises:
        Unavailable: there were fewer or more batches than there are.
    """
    watch, count = Stopwatch(), 0
    for batch in start():
        del batch
        count += 1
    seconds, cpu_s = watch.stop()
    if count != work.batches:
        raise Unavailable(f"it gave {count} batches of {work.batches}")
    return figures(work.bytes, seconds, cpu_s)


def make_warm(files: Iterable[Path]) -> None:
    """Reads files from the storage into the page cache, so that it holds all of them in pages of the same sizes.

    What a program has just written stays in the page cache as it was written: small writes leave small pages.  Reads
    out of them are up to a third slower than out of the large ones that the kernel's read-ahead makes.
    """
    for path in files:
        evict(path)
        read_through(path)


def make_cold(files: Iterable[Path]) -> None:
    """Evicts files from the page cache and checks that they are evicted.

    Raises:
        Unavailable: one cannot be taken out.
    """
    for path in files:
        for pause in PAUSES_S:
            time.sleep(pause)
            evict(path)
            share = cached_share(path)
            if share is not None and share <= _STILL_CACHED:
                break
        else:
            told = (
                ("the file system does not tell whether the file is in the page cache")
                if share is None
                else why_cached(path)
            )
            raise Unavailable(f"{path.name} cannot be read with a cold cache: {told}")
