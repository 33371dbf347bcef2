"""Compares ``au_of_storage`` with the utilisation that a device allows whose read rate a control group limits.

The truth is the simulation of a storage without latency (:mod:`benchmarks.utilisation.ideal`).  The kernel lets the
bytes of a pause of up to :data:`~benchmarks.utilisation.limited_group.BURST_S` through at once, or fewer: where the
trainer reads, a run may be as fast as without these bytes.  The cases are such that both agree within
:data:`MOST_UNKNOWN` points; the known utilisation is their mean.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import Unavailable, say
from benchmarks.harness.tables import Missing, Part, Row, Spread, Table
from benchmarks.utilisation.ideal import ideal_utilisation
from benchmarks.utilisation.limited_group import BURST_S, LimitedGroup, block_device, limited_group
from benchmarks.utilisation.storage_run import DataSet, data_files, generate, run_summary
from dlio_torch.data.engines.delayed_reads import StorageDelay
from dlio_torch.storage.local.eviction import evict

NAME = "limited device"
DATA = DataSet(files=70, edge=512, cache="cold")  # samples of 256 KiB
QUICK_DATA = DataSet(files=25, edge=512, cache="cold")
SLOW, FAST = 2_500_000, 40_000_000  # B/s: 105 ms and 7 ms for a sample
MOST_UNKNOWN = 3.0  # points


@dataclass(frozen=True)
class LimitedCase:
    """A run: step time in ms, format, workers, and read limit in B/s."""

    step_ms: float
    data: str
    workers: int
    bytes_per_s: int

    @property
    def name(self) -> str:
        return f"{self.step_ms:g} ms, {self.data}, {self.workers} workers, {self.bytes_per_s / 1e6:g} MB/s"


def limited_cases() -> Iterator[LimitedCase]:
    for data in ("hdf5", "npz"):
        for workers in (1, 2, 4):
            yield LimitedCase(50.0, data, workers, SLOW)
        yield LimitedCase(5.0, data, 0, SLOW)
        for workers in (0, 2):
            yield LimitedCase(250.0, data, workers, FAST)


def known_range(case: LimitedCase, size: int) -> tuple[float, float]:
    """Utilisation without and with the bytes that the trainer's pauses may let through at once.

    Args:
        case: of the table.
        size: bytes of a sample on the device.
    """
    rate, step_s = float(case.bytes_per_s), case.step_ms / 1e3
    saved = 0.0 if case.workers else rate * min(step_s, BURST_S)
    storage = StorageDelay(0.0, rate)
    sizes = size, max(1, round(size - saved))
    slowest, fastest = (ideal_utilisation(storage, [left], step_s, case.workers, 1, 500) for left in sizes)
    return slowest, fastest


def limited_parts(folder: Path, wanted: Sequence[LimitedCase], rounds: int, data: DataSet) -> Iterator[Part]:
    """Rows of the wanted cases and their verdict, or the reason for which they are left out.

    Args:
        folder: for the data, on the device to limit; exists.
        wanted: cases.
        rounds: runs of each case.
        data: the samples.
    """
    try:
        with limited_group(block_device(folder)) as group:
            yield from _parts(group, folder, wanted, rounds, data)
    except Unavailable as error:
        yield Missing(NAME, str(error))


def verdict(rows: Sequence[Row], goal: float) -> Row:
    """Number of rows, their largest difference, and how many are within the goal in points."""
    far = [abs(float(str(row["difference"]))) for row in rows]
    return {"cases": len(far), "largest": max(far), f"within {goal:g} points": sum(size <= goal for size in far)}


def _parts(
    group: LimitedGroup, folder: Path, wanted: Sequence[LimitedCase], rounds: int, data: DataSet
) -> Iterator[Part]:
    for name in sorted({case.data for case in wanted}):
        generate(name, folder, data)
        check_device(group, data_files(name, folder))
    rows: list[Row] = []
    for case in wanted:
        say(case.name)
        group.limit(case.bytes_per_s)
        rows.append(_row(case, group, folder, rounds, data))
        yield Table(NAME, rows[-1:])
    yield Table(f"differences of the {NAME}", [verdict(rows, MOST_UNKNOWN)])


def check_device(group: LimitedGroup, files: Sequence[Path]) -> None:
    """Checks that the limits are what bounds reads.

    Raises:
        Unavailable: the device is too slow to have the highest limit, or the lowest one has no effect.
    """
    some = files[: max(1, len(files) // 3)]
    rate = read_rate(some, ())
    if rate < 2 * FAST:
        raise Unavailable(f"the device reads {rate / 1e6:.0f} MB/s, less than twice the highest limit")
    group.limit(SLOW)
    rate = read_rate(some, group.prefix)
    if rate > 1.5 * SLOW:
        raise Unavailable(f"a limit of {SLOW / 1e6:g} MB/s has no effect: {rate / 1e6:.1f} MB/s were read")


def read_rate(files: Sequence[Path], prefix: Sequence[str]) -> float:
    """Bytes per second at which ``cat`` reads evicted files, run with a prefix."""
    for file in files:
        if (why := evict(file)) is not None:
            raise Unavailable(why)
    began = time.perf_counter()
    subprocess.run([*prefix, "cat", *map(str, files)], check=True, stdout=subprocess.DEVNULL)
    return sum(file.stat().st_size for file in files) / (time.perf_counter() - began)


def _row(case: LimitedCase, group: LimitedGroup, folder: Path, rounds: int, data: DataSet) -> Row:
    size = round(statistics.mean(file.stat().st_blocks * 512 for file in data_files(case.data, folder)))
    known = known_range(case, size)
    summaries = [_summary(case, group, folder, data, size) for _ in range(rounds)]
    said = [summary["au_of_storage"]["mean"] for summary in summaries]
    return {
        "step ms": case.step_ms,
        "format": case.data,
        "workers": case.workers,
        "limit MB/s": case.bytes_per_s / 1e6,
        "measured au %": Spread.of(100 * summary["au"]["mean"] for summary in summaries),
        "known %": 100 * statistics.mean(known),
        "known to points": 50 * (known[1] - known[0]),
        "au_of_storage %": Spread.of(100 * value for value in said),
        "difference": round(100 * (statistics.median(said) - statistics.mean(known)), 2),
    }


def _summary(case: LimitedCase, group: LimitedGroup, folder: Path, data: DataSet, size: int) -> dict[str, Any]:
    options = [f"compute.step_s={case.step_ms}ms", f"loader.num_workers={case.workers}"]
    with tempfile.TemporaryDirectory(dir=folder) as output:
        summary = run_summary(case.data, folder, Path(output) / "run", data, options, group.prefix)
    delivered = sum(epoch["read_bytes"] or 0 for epoch in summary["cache"]["epochs"])
    if delivered < 0.95 * size * data.files:
        raise SystemExit(f"{case.name}: the device delivered {delivered} B of {data.files} samples of {size} B")
    return summary
