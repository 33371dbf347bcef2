"""Scalars of a run for TensorBoard: rate, utilisation, wait and bytes over the training steps of each rank.

TensorBoard shows scalars without a network.  The page of its profiler plugin loads a chart library from the internet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.rank_steps import RankSteps
from dlio_torch.errors import MissingPackageError
from dlio_torch.syserrors import refused
from dlio_torch.train.steps import Steps

_MOST_POINTS = 1000
"""Points of a curve; TensorBoard shows no more."""


def write_scalars(folder: Path, steps: Mapping[int, Steps], *, emulates: bool) -> None:
    """Write one TensorBoard run for each rank, ``<folder>/rank<r>``.

    A curve has one point per training step, or the mean of as many neighbouring steps as keep it within 1000 points.

    Args:
        folder: log directory of TensorBoard.
        steps: step records of each rank.
        emulates: whether compute is emulated, so that there is a utilisation.

    Raises:
        MissingPackageError: TensorBoard is not installed.
        PreconditionError: a file cannot be written.
    """
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it says that TensorFlow is not installed
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise MissingPackageError(
            "the scalars for TensorBoard need the package tensorboard", hint="pip install 'dlio-torch[tensorboard]'"
        ) from error
    for rank, records in steps.items():
        try:
            writer = Writer(str(folder / f"rank{rank}"))
            try:
                for tag, number, value, wall_time in _points(RankSteps(records, 0, ()), emulates):
                    writer.add_scalar(tag, value, number, wall_time=wall_time)
            finally:
                writer.close()
        except OSError as error:
            raise refused(f"the scalars for TensorBoard cannot be written to {folder}", error) from error


def _points(rank: RankSteps, emulates: bool) -> Iterator[tuple[str, int, float, float]]:
    """Tag, number of the last step, value and Unix time of each point."""
    steps, duration_ns = rank.train, rank.train_duration
    if not len(steps):
        return
    width = -(-len(steps) // _MOST_POINTS)
    first = np.arange(0, len(steps), width)
    seconds = _sums(duration_ns, first) * 1e-9
    counts = np.diff([*first, len(steps)])
    ends = steps["start_ns"] + duration_ns
    unix = time.time() + (ends - ends[-1]) * 1e-9  # the last step ended just now
    curves = {
        "throughput/samples_per_s": _sums(steps["samples"], first) / seconds,
        "throughput/bytes_per_s": _sums(steps["bytes"], first) / seconds,
        "step/wait_for_data_s": _sums(steps["fetch_ns"], first) * 1e-9 / counts,
        "step/duration_s": seconds / counts,
        "step/bytes": _sums(steps["bytes"], first) / counts,
    }
    if emulates:
        curves["accelerator/utilisation"] = _sums(steps["requested_ns"], first) * 1e-9 / seconds
    for tag, values in curves.items():
        for low, count, value in zip(first, counts, values, strict=True):
            last = int(low + count)
            yield tag, last, float(value), float(unix[last - 1])


def _sums(values: NDArray[np.generic], first: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.add.reduceat(values.astype(np.float64), first)
