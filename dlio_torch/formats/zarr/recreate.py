"""Options that generate Zarr stores like existing ones: chunks and codec of the arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation

_CODECS = ("zstd", "blosc", "gzip")


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of an existing store."""
    stored = {array.name: array for array in description.arrays}
    arrays = [stored[entry.name] for entry in description.fields if entry.name in stored]
    chunks = {array.name: list(array.chunks) if array.chunks else None for array in arrays}
    fields = tuple(replace(entry, chunk=chunks.get(entry.name)) for entry in description.fields)
    text = next((array.compression for array in arrays if array.compression), "")
    codec = next((name for name in _CODECS if name in text), "none")
    options: dict[str, Any] = {**description.options, "compression": codec}
    others = sorted({array.compression for array in arrays if array.compression and codec not in array.compression})
    differences = tuple(f"the codec {name} is not that of generated chunks" for name in others)
    return Recreation(fields, options, differences=differences)
