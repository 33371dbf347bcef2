"""What the hand-over of a batch from its maker to the trainer took, from when batches were finished, asked for and had.

A maker hands its batches over one after another, beside making the next one; the trainer does the last part itself::

    handed[k] = max(ended[k], handed[k - n]) + handing
    had[k]    = max(asked[k], handed[k]) + serial

Both lengths are fitted to a run, by the least mean of absolute differences; the maker's part is no longer than it
took most batches from being finished to being had.  Often several pairs fit alike: where the trainer always waits
for batches that are being made, only their sum shows; where batches lie ready when they are asked for, only the
trainer's own part does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.intervals import Ints
from dlio_torch.analysis.makers import Floats

_TRIED = np.linspace(0, 1, 21)  # quantiles of the times in which a batch, or one after another, came
_SHORT = 0.25  # quantile
_AS_GOOD = 1.1
_TIMER_S = 2e-5
_FEW = 4


@dataclass(frozen=True)
class HandOver:
    """Seconds of a batch.

    Attributes:
        serial: the trainer's own part of the hand-over.
        handing: the maker's, before it.
    """

    serial: float
    handing: float


def fitted(asked: Floats, ended: Floats, had: Floats, maker: Ints, epoch: Ints) -> tuple[HandOver, HandOver] | None:
    """The hand-overs that fit a run: the one with the smallest part of the trainer, and the one with the largest.

    Args:
        asked: when the trainer asked for each batch, in this order, s.
        ended: when it was finished.
        had: when the trainer had it.
        maker: number of the thread that made it.
        epoch: its epoch.

    Returns:
        None: there are no batches.
    """
    if not asked.size:
        return None
    before = _before(maker, epoch)
    known = before >= 0  # the first one of each maker waits for much that begins
    if known.sum() < _FEW:
        known = np.ones(asked.size, bool)
    took = np.maximum(had - ended, 0.0)
    most = float(np.quantile(took, _SHORT))
    later = np.flatnonzero(before >= 0)
    tried = np.concatenate(
        [np.quantile(times, _TRIED) for times in (took, had[later] - had[before[later]]) if times.size]
    )
    found = []
    for handing in np.unique(np.concatenate(([0.0], tried[tried <= most]))):
        rest = (had - np.maximum(asked, _handed(ended, before, float(handing))))[known]
        serial = float(np.maximum(rest, 0).mean())
        found.append((float(np.abs(rest - serial).mean()), HandOver(serial, float(handing))))
    enough = _AS_GOOD * min(error for error, _ in found) + _TIMER_S
    good = [one for error, one in found if error <= enough]
    return min(good, key=lambda one: (one.serial, one.handing)), max(good, key=lambda one: (one.serial, one.handing))


def _before(maker: Ints, epoch: Ints) -> Ints:
    """For each batch the place of the one that its maker made before in that epoch; -1: it is the first."""
    last: dict[tuple[int, int], int] = {}
    found = np.full(maker.size, -1, np.int64)
    for k, key in enumerate(zip(maker.tolist(), epoch.tolist(), strict=True)):
        found[k] = last.get(key, -1)
        last[key] = k
    return found


def _handed(ended: Floats, before: Ints, handing: float) -> NDArray[np.float64]:
    handed = ended + handing
    for k in np.flatnonzero(before >= 0):
        handed[k] = max(handed[k], handed[before[k]] + handing)
    return handed
