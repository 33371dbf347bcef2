"""Measures direct reads (O_DIRECT) of the decoupled engine relative to fio with the same engine, threads and depth.

Samples lie one after the other in a binary file and are read in shuffled order, by one request each.  fio reads a raw
file by random requests of whole blocks.  A sample whose size is no multiple of a block lies in more blocks than its
bytes fill: fio's bytes count as bytes of samples by the same share.  ``psync`` is the engine of ``loader.io=threads``,
one request in flight per thread.

fio reads into the same few buffers again and again.  A loader fills batches, and memory that was not used a moment ago
costs some devices a fifth of their rate.  The limit is this: two threads in C that read fio's requests into the memory
of two groups of samples each, in turn.

All ways of a size take turns, so that other work on the machine slows all of them, and every ratio is one of the same
round.

fio reads into huge pages where the system has reserved enough of them, as the engine's blocks are of huge pages.
"""

from __future__ import annotations

import math
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Stopwatch, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.loading.arguments import sizes_of
from benchmarks.loading.baseline import reads
from benchmarks.loading.ours import Data
from benchmarks.loading.work import THREADS, Way, Work, epoch, figures, write_raw
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled.block_pool import Blocks
from dlio_torch.data.engines.decoupled.reading_io import open_reading_mover, refused_uring
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.direct_file import BLOCK
from dlio_torch.native.extents import Mover
from dlio_torch.storage.local.raw_readers import fio_version, read_with_fio

NAME = "direct_io"
SIZES = "4096,40000,262144,16777216"
DEPTH = 32
MOST_IN_FLIGHT = 64 << 20
"""Bytes in flight of a thread, at most: the depth of large requests is lower."""

ENGINES = {"threads": "psync", "io_uring": "io_uring"}
"""``loader.io`` -> fio's engine."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", default="", help=f"sizes of samples in bytes: {SIZES}")
    parser.add_argument("--depth", type=int, default=DEPTH, help="requests in flight of each thread with io_uring")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of a measurement of fio")
    parser.add_argument("--bytes", type=int, default=0, help="bytes of an epoch; 0: 512 MiB, with --quick 8 MiB")


def run(arguments: Namespace) -> Iterator[Part]:
    for size in sizes_of(arguments, SIZES):
        total = arguments.bytes or (8 << 20 if arguments.quick else min(512 << 20, size << 16))
        work = Work.of(size, total, "shuffled", cold=False)
        depth = max(1, min(arguments.depth, MOST_IN_FLIGHT // size))
        say(f"{size} bytes, depth {depth}")
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder, ExitStack() as stack:
            yield from _part(Path(folder), work, depth, arguments, stack)


def _part(folder: Path, work: Work, depth: int, arguments: Namespace, stack: ExitStack) -> Iterator[Part]:
    where = f"{work.size} bytes"
    raw = folder / "raw"
    write_raw(raw, work)
    seconds = 0.1 if arguments.quick else arguments.seconds
    ways = {_fio(io): Way(_fio(io), _fio_reads(raw, work, io, depth, seconds)) for io in ENGINES}
    ways |= {_limit(io): Way(_limit(io), _limit_reads(raw, work, io, depth)) for io in ENGINES}
    try:
        for way in _loaders(DirectData(folder, "binary", work), depth):
            if isinstance(way, Missing):
                yield Missing(way.way, way.why, where)
                continue
            stack.callback(way.close)
            ways[way.name] = way
    except DlioError as error:
        yield Missing("the decoupled engine", str(error), where)
        return
    found = interleave({name: way.measure for name, way in ways.items()}, rounds_of(arguments))
    yield from (Missing(name, why, where) for name, why in found.dropped.items())
    rows: list[Row] = [
        {
            "sample (bytes)": work.size,
            "way": name,
            "in flight per thread": depth if "io_uring" in name else 1,
            "MB/s": found.spread(name, "bytes_per_s").scaled(1e-6),
            "of fio": found.ratio(name, "bytes_per_s", _fio(io)) if _fio(io) in found.figures else None,
            "of the limit": found.ratio(name, "bytes_per_s", _limit(io)) if _limit(io) in found.figures else None,
            "processor time of a byte, of fio": (
                found.ratio(name, "cpu_s_per_byte", _fio(io)).median if _fio(io) in found.figures else None
            ),
        }
        for name in found.figures
        for io in [next(io for io in reversed(ENGINES) if io in name or ENGINES[io] in name)]
    ]
    yield Table(NAME, rows, f"fio: {fio_version() or 'not installed'}, memory of {_memory(work, depth)}.")


class DirectData(Data):
    """Generated data of one layout, read past the page cache."""

    def loader(self, io: str, depth: int) -> Way:
        """A way that reads by the decoupled engine.

        Raises:
            DlioError: the file system does not permit direct reads.
        """
        size, options = self.work.size, {} if io == "threads" else {"queue_depth": depth}
        in_flight = THREADS * options.get("queue_depth", 1) * size
        loader: dict[str, Any] = {
            "engine": "decoupled", "io": io, "read_threads": THREADS, **options,
            "transfer_size": max(1 << 20, _request(size)),
            "prefetch_bytes": max(16 << 20, 2 * (THREADS + 1) * in_flight, 4 * self.work.batch * size),
        }  # fmt: skip
        self.config = replace(self.config, dataset=replace(self.config.dataset, direct_io=True))
        return self._way(f"decoupled, {io}", loader)


def _loaders(data: DirectData, depth: int) -> Iterator[Way | Missing]:
    for io in ENGINES:
        refusal = refused_uring(LoaderConfig(io=io, queue_depth=depth))  # type: ignore[arg-type]
        yield data.loader(io, depth) if refusal is None else Missing(f"decoupled, {io}", refusal)


def _fio(io: str) -> str:
    return f"fio, {ENGINES[io]}"


def _limit(io: str) -> str:
    return f"limit, {io}"


def _request(size: int) -> int:
    """Bytes of the whole blocks of a sample."""
    return -(-size // BLOCK) * BLOCK


def _mean_bytes(size: int) -> float:
    """Mean bytes of the whole blocks in which a sample lies, over all samples of a long file."""
    return size + BLOCK - math.gcd(size, BLOCK)


def _memory(work: Work, depth: int) -> str:
    """Kind of fio's memory: ``huge pages`` where enough are free, else ``pages``."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        free = int(lines["HugePages_Free"]) * int(lines["Hugepagesize"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = 0
    return "huge pages" if free > 2 * THREADS * (depth * _request(work.size) + (2 << 20)) else "pages"


def _fio_reads(raw: Path, work: Work, io: str, depth: int, seconds: float) -> Any:
    """A measurement by fio, in bytes of samples."""
    memory = "--iomem=mmaphuge" if _memory(work, depth) == "huge pages" else "--iomem=mmap"
    engine = [ENGINES[io], memory, *([f"--iodepth={depth}"] if io == "io_uring" else [])]
    request = _request(work.size)
    part = work.bytes // THREADS // request * request

    def measure() -> Figures:
        if fio_version() is None:
            raise Unavailable("fio is not installed")
        watch = Stopwatch()
        try:
            reading = read_with_fio(str(raw), "random", "direct", request, THREADS, part, seconds, engine=engine)
        except OSError as error:
            raise Unavailable(str(error)) from error
        return figures(int(reading.bytes * work.size / _mean_bytes(work.size)), reading.seconds, watch.stop()[1])

    return measure


def _limit_reads(raw: Path, work: Work, io: str, depth: int) -> Any:
    """A measurement of the limit, in bytes of samples; a group is large enough to keep the ring full."""
    request = _request(work.size)
    count = work.bytes // request
    group = max(1, min(max(work.batch, 4 * depth if io == "io_uring" else 1), count // (2 * THREADS)))
    blocks = replace(work, size=request, batch=group, samples=count // group * group)
    loader, pool = LoaderConfig(io=io, queue_depth=depth), Blocks(2 * THREADS)  # type: ignore[arg-type]

    def opened() -> Mover:
        return open_reading_mover(loader, direct=True)

    def start() -> Iterator[Any]:
        return reads(raw, blocks, group * request, request, pool, opened=opened, flags=os.O_DIRECT)

    def measure() -> Figures:
        refusal = refused_uring(loader)
        if refusal is not None:
            raise Unavailable(refusal)
        found = epoch(start, blocks)
        share = work.size / _mean_bytes(work.size)
        return {"bytes_per_s": found["bytes_per_s"] * share, "cpu_s_per_byte": found["cpu_s_per_byte"] / share}

    return measure


if __name__ == "__main__":
    alone(NAME)
