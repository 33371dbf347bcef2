"""Header of a safetensors file: the length as u64, then JSON with dtype, shape and byte range of each array."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.safetensors.facts import LENGTH, MOST_HEADER

METADATA = "__metadata__"
"""Name of the entry of a header that holds free texts."""

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{
        f"{sign}{bits}": np.dtype(f"{kind}int{bits}")
        for sign, kind in (("I", ""), ("U", "u"))
        for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
"""Name of an element type in a header -> NumPy's."""

STAND_INS: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype(np.uint16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), np.dtype(np.uint8)),
}
"""Element types that NumPy lacks -> the type of the same size as which their bytes are read."""

_HINT = "the file is damaged or of another format; replace it or correct dataset.format"


@dataclass(frozen=True)
class StoredTensor:
    """An array of a file.

    Attributes:
        dtype: name of the element type, as the header has it.
        shape: of the array.
        begin: first byte in the file.
        end: the byte behind the last.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def read_as(self) -> np.dtype[Any] | None:
        """Type as which the elements are read; ``None``: they cannot be."""
        return DTYPES.get(self.dtype, STAND_INS.get(self.dtype))


def read_header(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Reads the header of a file; returns its arrays by name, in the order of their bytes, and the free texts.

    Raises:
        DataError: missing, incomplete, damaged or no safetensors file.
    """
    with os_errors(path), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(LENGTH), "little")
        if size < LENGTH + 2 or not 2 <= length <= min(MOST_HEADER, size - LENGTH):
            raise DataError(f"{path} has no header of safetensors", hint=_HINT)
        text = file.read(length)
    try:
        header = json.loads(text)
        texts = header.pop(METADATA, {})
        entries = {name: _entry(value, LENGTH + length, size) for name, value in header.items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: the header of safetensors is damaged: {error}", hint=_HINT) from error
    return dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[0]))), texts


def _entry(value: dict[str, Any], base: int, size: int) -> StoredTensor:
    begin, end = (base + int(place) for place in value["data_offsets"])
    entry = StoredTensor(str(value["dtype"]), tuple(int(length) for length in value["shape"]), begin, end)
    dtype = entry.read_as
    if not base <= begin <= end <= size or any(length < 0 for length in entry.shape):
        raise ValueError(f"an array lies at bytes {begin} to {end} of {size}")
    if dtype is not None and end - begin != math.prod(entry.shape) * dtype.itemsize:
        raise ValueError(f"an array {entry.dtype}{list(entry.shape)} has {end - begin} bytes")
    return entry
