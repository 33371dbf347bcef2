"""Mean, minimum, median, 95th percentile and maximum of measured values, as ``summary.json`` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def distribution(values: NDArray[Any] | Sequence[float] | None, unit: float = 1) -> dict[str, float] | None:
    """Statistics of values; ``None`` if there is no value.

    Args:
        values: what was measured; ``None`` stands for nothing.
        unit: factor that brings the values to the unit of the result.

    Returns:
        ``mean``, ``min``, ``median``, ``p95`` (by linear interpolation) and ``max``.
    """
    if values is None or not len(values):
        return None
    numbers = np.asarray(values)
    return {
        "mean": float(numbers.mean()) * unit,
        "min": float(numbers.min()) * unit,
        "median": float(np.median(numbers)) * unit,
        "p95": float(np.percentile(numbers, 95)) * unit,
        "max": float(numbers.max()) * unit,
    }
