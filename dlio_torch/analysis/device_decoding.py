"""Figures of samples that GPUs decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlio_torch.analysis.step_metrics import time_figures
from dlio_torch.train.result import DecodeTimes

_NONE = {"samples": None, "samples_per_s": None, "duration_s": None}


def decoding_figures(ranks: Sequence[DecodeTimes | None]) -> dict[str, Any]:
    """Samples decoded on GPUs, of all ranks and batches: their number, the rate of a GPU, the time of a batch.

    Args:
        ranks: times of each rank; ``None``: its GPU decoded nothing.
    """
    times = [each for each in ranks if each is not None and each.ns]
    if not times:
        return {**_NONE, "why": "no sample was decoded on a GPU"}
    ns, samples = np.concatenate([np.asarray(each.ns) for each in times]), sum(sum(each.samples) for each in times)
    return {
        "samples": samples,
        "samples_per_s": samples / (float(ns.sum()) * 1e-9),
        "duration_s": time_figures(ns),
        "why": None,
    }
