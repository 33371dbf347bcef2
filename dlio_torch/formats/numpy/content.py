"""Inspection of NumPy files: arrays from their headers; pickled objects are not loaded."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from dlio_torch.formats.core.content import MOST

_NPY_HEAD = 1 << 16


def read_array(path: Path, content: dict[str, Any]) -> None:
    """Add ``dtype``, ``shape``, ``stored_bytes`` and ``logical_bytes`` of a file of one array."""
    with open(path, "rb") as file:
        content |= _array(file, content["bytes"])


def read_archive(path: Path, content: dict[str, Any]) -> None:
    """Add ``arrays``, each with ``name`` and the figures of :func:`read_array`, and ``complete``."""
    content |= {"arrays": [], "complete": False}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members[:MOST]:
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    array = _array(file, member.compress_size)
                content["arrays"].append({"name": member.filename.removesuffix(".npy"), **array})
        content["complete"] = len(members) <= MOST
    if not content["arrays"]:
        content["format"] = "zip"


def _array(file: IO[bytes], stored: int) -> dict[str, Any]:
    """Type, shape and sizes of an array, from its NPY header."""
    head = io.BytesIO(file.read(_NPY_HEAD))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head)
    logical = None if dtype.hasobject else int(np.prod(shape, dtype=object)) * dtype.itemsize
    return {"dtype": str(dtype), "shape": list(shape), "stored_bytes": stored, "logical_bytes": logical}
