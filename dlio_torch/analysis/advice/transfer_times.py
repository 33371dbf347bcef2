"""Fits the transfer times of batches from their producers to the trainer.

The transfer of a batch has two parts.  First the producer sends the batch, one batch after another, while it produces
the next one.  Then the trainer receives the batch, after it has requested it.  For batch ``k``::

    sent[k]     = max(produced[k], sent[previous]) + sending
    received[k] = max(requested[k], sent[k]) + serial

``produced[k]``
    time at which the production of the batch ended
``sent[k]``
    time at which the producer had sent the batch
``previous``
    the preceding batch of the same producer: the next transfer starts when its transfer has ended
``requested[k]``
    time at which the trainer requested the batch
``received[k]``
    time at which the trainer had the batch
``sending``
    seconds of the producer's part of each transfer
``serial``
    seconds of the trainer's part of each transfer

``sending`` and ``serial`` are fitted to a run by the smallest mean absolute difference between modelled and measured
``received``.  ``sending`` is at most the lower quartile of the times from ``produced`` to ``received``.  Often several
pairs fit equally well: if the trainer always waits for batches in production, only the sum of both parts is visible; if
batches are ready when they are requested, only ``serial`` is.
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
    """Seconds of a batch's transfer from its producer to the trainer, in two parts.

    Attributes:
        serial: the trainer's part of the transfer, after the producer's part.
        sending: the producer's part of the transfer.
    """

    serial: float
    sending: float


def fitted(
    requested: Floats, produced: Floats, received: Floats, producer: Ints, epoch: Ints
) -> tuple[TransferTime, TransferTime] | None:
    """Fits transfer times to a run: one fit with the smallest part of the trainer, one with the largest.

    Args:
        requested: time at which the trainer requested each batch, ascending, s.
        produced: time at which the production of each batch ended, s.
        received: time at which the trainer had each batch, s.
        producer: number of the thread that produced each batch.
        epoch: epoch of each batch.

    Returns:
        Both fits; None if there are no batches.
    """
    if not requested.size:
        return None
    before = _before(producer, epoch)
    known = before >= 0  # the first one of each producer waits for much that begins
    if known.sum() < _FEW:
        known = np.ones(requested.size, bool)
    took = np.maximum(received - produced, 0.0)
    most = float(np.quantile(took, _SHORT))
    later = np.flatnonzero(before >= 0)
    tried = np.concatenate(
        [np.quantile(times, _TRIED) for times in (took, received[later] - received[before[later]]) if times.size]
    )
    fits = []
    for sending in np.unique(np.concatenate(([0.0], tried[tried <= most]))):
        rest = (received - np.maximum(requested, _sent(produced, before, float(sending))))[known]
        serial = float(np.maximum(rest, 0).mean())
        fits.append((float(np.abs(rest - serial).mean()), TransferTime(serial, float(sending))))
    enough = _AS_GOOD * min(error for error, _ in fits) + _TIMER_S
    good = [transfer for error, transfer in fits if error <= enough]
    return min(good, key=lambda transfer: (transfer.serial, transfer.sending)), max(
        good, key=lambda transfer: (transfer.serial, transfer.sending)
    )


def _before(producer: Ints, epoch: Ints) -> Ints:
    """Index of the preceding batch of the same producer and epoch; -1 for the first one."""
    last: dict[tuple[int, int], int] = {}
    places = np.full(producer.size, -1, np.int64)
    for k, key in enumerate(zip(producer.tolist(), epoch.tolist(), strict=True)):
        places[k] = last.get(key, -1)
        last[key] = k
    return places


def _sent(produced: Floats, before: Ints, sending: float) -> NDArray[np.float64]:
    sent = produced + sending
    for k in np.flatnonzero(before >= 0):
        sent[k] = max(sent[k], sent[before[k]] + sending)
    return sent
