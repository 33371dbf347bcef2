"""Measures the growth of one rank's index at a constant share: with all samples, all files and all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.tables import Row
from benchmarks.starting.index import index_of
from dlio_torch.config.compose import compose
from dlio_torch.formats.core import registry

SHARE = 2048
"""Samples that a rank reads in an epoch."""
BATCH = 16
FILES = 64
"""Files of a rank's share."""

STREAM = ("access=stream", "access.order=shuffled", "access.partition=files")
KINDS = {
    "all samples permuted, cut into batches": ("access=shuffled", "access.partition=batches"),
    "random blocks": ("access=random_blocks",),
    "slices, each permuted": ("access=shuffled", "access.partition=slices"),
    "files dealt, their samples permuted": ("access=files",),
    "stream of files, dealt and shuffled": (*STREAM, "access.shard=before_shuffle"),
    "stream of files, shuffled and dealt": (*STREAM, "access.shard=after_shuffle"),
}
"""What says which samples a rank reads, and the options that choose it."""
BY_SAMPLES = tuple(KINDS)[:2]


@dataclass(frozen=True)
class Point:
    """A point of the sweep: the last rank of a number of ranks."""

    samples: int
    files: int
    ranks: int


def with_ranks(most: int) -> list[Point]:
    """More ranks with more samples and files, so that the share of each rank is constant."""
    ranks = [1]
    while ranks[-1] < most:
        ranks.append(min(most, 8 * ranks[-1]))
    return [Point(SHARE * one, FILES * one, one) for one in ranks]


def with_samples(powers: Sequence[int]) -> list[Point]:
    """More samples in the same number of files and ranks; a rank reads the same number per epoch."""
    return [Point(1 << power, 1024, 64) for power in powers]


def rows(sweep: str, points: Sequence[Point], kinds: Sequence[str]) -> Iterator[Row]:
    """Bytes and seconds at each point, and the growth per additional sample or rank."""
    for kind in kinds:
        found = []
        for point in points:
            figures = _measured(kind, point)
            found.append((point, figures))
            yield {
                "sweep": sweep,
                "order": kind,
                "samples": point.samples,
                "files": point.files,
                "ranks": point.ranks,
                "kept (KiB)": figures["index_bytes"] / 1024,
                "at the most (KiB)": figures["index_peak_bytes"] / 1024,
                "made in (ms)": figures["index_s"] * 1e3,
            }


def fits(found: Sequence[Row]) -> Iterator[Row]:
    """Straight lines through the points of each sweep and order."""
    keys = dict.fromkeys((row["sweep"], row["order"]) for row in found)
    for sweep, order in keys:
        some = [row for row in found if (row["sweep"], row["order"]) == (sweep, order)]
        fit: dict[str, float | str | None] = {"sweep": str(sweep), "order": str(order)}
        of = "ranks" if sweep == "ranks" else "samples"
        at = np.array([row[of] for row in some], float)
        for column, name, unit in (
            ("kept (KiB)", "kept", 1024), ("at the most (KiB)", "at the most", 1024), ("made in (ms)", "time", 1e6)
        ):  # fmt: skip
            slope = np.polyfit(at, np.array([row[column] for row in some], float) * unit, 1)[0]
            fit[f"{name}: {'ns' if name == 'time' else 'bytes'} a {of[:-1]} more"] = float(slope)
        yield fit


def _measured(kind: str, point: Point) -> dict[str, float]:
    options = [
        "recipe=minimal", "scale=paper", *KINDS[kind], f"dataset.num_files={point.files}",
        f"dataset.samples_per_file={point.samples // point.files}", f"train.batch_size={BATCH}",
        "train.batch_scope=rank", f"train.steps={SHARE // BATCH}",
    ]  # fmt: skip
    config = compose(options, environ={}).config
    return index_of(config, registry.create(config.dataset, config.seed), point.ranks - 1, point.ranks)
