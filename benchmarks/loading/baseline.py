"""Measures the rate of the storage: two threads that only read, of fio or of this package's C code."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.rounds import Figures, Stopwatch, Unavailable
from benchmarks.loading.work import THREADS, Way, Work, epoch, figures
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled.block_pool import Blocks
from dlio_torch.native import NativeUnavailable
from dlio_torch.native.extents import Mover, NativeMover
from dlio_torch.native.memory import address_of
from dlio_torch.storage.local.raw_readers import fio_version, read_with_fio

BASELINE = "two threads that only read"
LARGE = "the same, in large requests"
LIMIT = "limit"
SMALL = 16 << 20
"""Bytes that are good for a look only."""


def ways(raw: Path, work: Work) -> list[Way]:
    """The baseline, the same with requests of ``loader.transfer_size``, and the upper limit of any loader.

    The limit is what is left when only the loader is left out: two threads that read the same batches by the same
    requests into the memory of two batches each, in turn: a loader needs one to be filled by each thread, one that is
    ready and one that is in use.  They are larger than a core's cache, and the baseline's buffer is not.  As a
    loader's they are there from the first epoch on, which does not count.
    """
    pool = Blocks(2 * THREADS)  # large blocks of which may be huge pages
    large = max(work.size, LoaderConfig().transfer_size)
    return [
        Way(BASELINE, lambda: _baseline(raw, work, work.size), [raw]),
        Way(LARGE, lambda: _baseline(raw, work, large), [raw]),
        Way(LIMIT, lambda: epoch(lambda: reads(raw, work, work.batch * work.size, 1 << 20, pool), work), [raw]),
    ]


def reader() -> str:
    """Name of the program that reads for the baseline."""
    return fio_version() or "own threads, no fio"


def _baseline(raw: Path, work: Work, request: int) -> Figures:
    if fio_version() is None:
        return epoch(lambda: reads(raw, work, request, request, Blocks(THREADS), each=1), work)
    part = work.bytes // THREADS // request * request
    if part == 0:
        raise Unavailable(f"the file is too small for {THREADS} threads that read {request} bytes")
    pattern = "random" if work.order == "shuffled" else "sequential"
    seconds = 0.05 if work.bytes <= SMALL else 2.0 if work.cold else 0.5
    watch = Stopwatch()
    reading = read_with_fio(str(raw), pattern, "cold" if work.cold else "warm", request, THREADS, part, seconds)
    return figures(reading.bytes, reading.seconds, watch.stop()[1])


def reads(
    raw: Path,
    work: Work,
    memory: int,
    request: int,
    pool: Blocks,
    each: int = 2,
    opened: Callable[[], Mover] = NativeMover,
    flags: int = 0,
) -> Iterator[Any]:
    """Reads the batches by two threads, each into its blocks in turn; yields one empty item per batch.

    Args:
        raw: file of all samples.
        work: the batches.
        memory: bytes of a block.
        request: most bytes of a request.
        pool: gives the blocks.
        each: blocks of a thread.
        opened: opens what reads.
        flags: more flags of the file's descriptor.

    Raises:
        Unavailable: the reader is not available.
    """
    try:
        mover = opened()
    except NativeUnavailable as error:
        raise Unavailable(f"the reader is written in C and is not available: {error}") from error
    batches = [np.sort(np.array(batch, np.int64)) for batch in work.sampler()]
    blocks = [pool.take(memory) for _ in range(THREADS * each)]
    batch = work.batch
    to = np.arange(batch, dtype=np.int64) % (memory // work.size) * work.size
    lengths = np.full(batch, work.size, np.int64)
    with os.fdopen(os.open(raw, os.O_RDONLY | flags), "rb", buffering=0) as file:
        which = np.full(batch, file.fileno(), np.int32)

        def read(thread: int) -> None:
            firsts = itertools.cycle(map(address_of, blocks[thread::THREADS]))
            for number, first in zip(range(thread, len(batches), THREADS), firsts, strict=False):
                mover.read(which, batches[number] * work.size, lengths, to + first, request)

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(read, range(THREADS)))  # whose errors are raised here
    yield from (None for _ in batches)
