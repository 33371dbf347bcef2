"""Layout of a safetensors file: each array is one byte range, which the header states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_rows import Spaced, SpacedRows
from dlio_torch.formats.core.stacking import Stacking, agreed
from dlio_torch.formats.safetensors.options import SAMPLES_OPTION
from dlio_torch.formats.safetensors.reader import require
from dlio_torch.formats.safetensors.tensor_header import read_header


def file_layout(path: Path, specs: Sequence[ArraySpec], *, rows: bool) -> FileLayout:
    """The layout of a file.

    Args:
        path: the file.
        specs: arrays of a sample.
        rows: samples are rows of the arrays; else the file is one sample.

    Raises:
        DataError: missing or damaged, or its arrays are not what ``specs`` say.
    """
    entries, _ = read_header(path)
    stacking = Stacking(rows, SAMPLES_OPTION)
    layouts: dict[str, ArrayLayout] = {}
    counts = {}
    for spec in specs:
        require(spec.name, entries, path)
        entry = entries[spec.name]
        count = stacking.count(spec, entry.read_as or np.dtype(np.void), entry.shape, path)
        counts[spec.name] = count if rows else 1
        size = math.prod(spec.shape) * spec.dtype.itemsize
        extents = (np.zeros(1, np.int64), np.array([count], np.int64)) if spec.variable else None
        layouts[spec.name] = SpacedRows(Spaced(path, spec.name, entry.begin, size, size, count), extents)
    return FileLayout(agreed(counts, path), layouts)
