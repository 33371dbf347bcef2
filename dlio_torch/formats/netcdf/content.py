"""Inspection of a classic netCDF file: arrays from its header."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.netcdf.classic_header import read_classic_header


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``arrays`` and ``complete`` for a classic file; netCDF-4 files are described as HDF5.

    An array has ``name``, ``dtype``, ``shape``, ``logical_bytes``, ``offset``, where its first element lies, and
    ``step``, the bytes from one record to the next.
    """
    header = read_classic_header(path)
    variables = list(header.variables.items()) if header is not None else []
    content["arrays"] = [
        {
            "name": name, "dtype": variable.kind, "shape": list(variable.shape), "offset": variable.begin,
            "step": variable.step, "logical_bytes": variable.element * math.prod(variable.shape),
        }
        for name, variable in variables[:MOST]
    ]  # fmt: skip
    content["complete"] = len(variables) <= MOST
