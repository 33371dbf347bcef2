"""Sizes of the arrays of a sample, as configured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlio_torch.config.schema import FieldConfig


def field_bytes(field: FieldConfig) -> int:
    """Mean bytes of one array of a sample."""
    return int(math.prod(field.shape) * np.dtype(field.dtype).itemsize * (field.length_mean or 1))


def chunk_bytes(field: FieldConfig, default: int) -> int:
    """Bytes of a chunk of one array; ``default`` where the field sets no chunk shape."""
    return default if field.chunk is None else math.prod(field.chunk) * np.dtype(field.dtype).itemsize
