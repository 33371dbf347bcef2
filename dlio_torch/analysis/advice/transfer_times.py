"""Fits the transfer times of batches from their producers to the trainer.

A producer sends its batches one after another, while it produces the next one.  The trainer does the last part::

    handed[k] = max(ended[k], handed[k - n]) + sending
    had[k]    = max(asked[k], handed[k]) + serial

Both lengths are fitted to a run by the smallest mean of absolute differences.  ``sending`` is at most the time that
most batches took from their end to the trainer.  Often several pairs fit alike: only the sum shows if the trainer
always waits for batches in production, only ``serial`` if batches are ready when they are requested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.producers import Floats
from dlio_torch.iotrace.figures.intervals import Ints

_TRIED = np.linspace(0, 1, 21)  # quantiles of the times in which a batch, or one after another, came
_SHORT = 0.25  # quantile
_AS_GOOD = 1.1
_TIMER_S = 2e-5
_FEW = 4


@dataclass(frozen=True)
class TransferTime:
    """Transfer of a batch, seconds.

    Attributes:
        serial: the trainer's own part of the transfer.
        sending: the producer's, before it.
    """

    serial: float
    sending: float


def fitted(
    requested: Floats, ended: Floats, had: Floats, producer: Ints, epoch: Ints
) -> tuple[TransferTime, TransferTime] | None:
    """Transfers that fit a run: with the smallest part of the trainer, and with the largest.

    Args:
        requested: when the trainer asked for each batch, in this order, s.
        ended: when it was finished.
        had: when the trainer had it.
        producer: number of the thread that made it.
        epoch: its epoch.

    Returns:
        None: there are no batches.
    """
    if not requested.size:
        return None
    before = _before(producer, epoch)
    known = before >= 0  # the first one of each producer waits for much that begins
    if known.sum() < _FEW:
        known = np.ones(requested.size, bool)
    took = np.maximum(had - ended, 0.0)
    most = float(np.quantile(took, _SHORT))
    later = np.flatnonzero(before >= 0)
    tried = np.concatenate(
        [np.quantile(times, _TRIED) for times in (took, had[later] - had[before[later]]) if times.size]
    )
    fits = []
    for sending in np.unique(np.concatenate(([0.0], tried[tried <= most]))):
        rest = (had - np.maximum(requested, _handed(ended, before, float(sending))))[known]
        serial = float(np.maximum(rest, 0).mean())
        fits.append((float(np.abs(rest - serial).mean()), TransferTime(serial, float(sending))))
    enough = _AS_GOOD * min(error for error, _ in fits) + _TIMER_S
    good = [transfer for error, transfer in fits if error <= enough]
    return min(good, key=lambda transfer: (transfer.serial, transfer.sending)), max(
        good, key=lambda transfer: (transfer.serial, transfer.sending)
    )


def _before(producer: Ints, epoch: Ints) -> Ints:
    """Index of the preceding batch of the same producer and epoch; -1: it is the first."""
    last: dict[tuple[int, int], int] = {}
    places = np.full(producer.size, -1, np.int64)
    for k, key in enumerate(zip(producer.tolist(), epoch.tolist(), strict=True)):
        places[k] = last.get(key, -1)
        last[key] = k
    return places


def _handed(ended: Floats, before: Ints, sending: float) -> NDArray[np.float64]:
    handed = ended + sending
    for k in np.flatnonzero(before >= 0):
        handed[k] = max(handed[k], handed[before[k]] + sending)
    return handed
