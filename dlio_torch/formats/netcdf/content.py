"""Arrays of a classic netCDF file, from its header."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.netcdf.classic_header import read_layout


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``arrays`` of a classic file, and ``complete``; netCDF-4 is HDF5.

    An array has ``name``, ``dtype``, ``shape``, ``logical_bytes``, ``offset``, where its first element lies, and
    ``step``, the bytes from one record to the next.
    """
    layout = read_layout(path)
    variables = list(layout.variables.items()) if layout is not None else []
    content["arrays"] = [
        {
            "name": name, "dtype": one.kind, "shape": list(one.shape), "offset": one.begin, "step": one.step,
            "logical_bytes": one.element * math.prod(one.shape),
        }
        for name, one in variables[:MOST]
    ]  # fmt: skip
    content["complete"] = len(variables) <= MOST
