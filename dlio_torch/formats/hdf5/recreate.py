"""Options that generate HDF5 files like existing ones: chunks, filters, and how far the content can be compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.recreation import ObservedReads, Recreation

_GZIP = re.compile(r"gzip (\d)")
_LZF = "lzf"
_OFTEN = 0.5  # opens for each sample, from which on they belong to it


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    stored = {array.name: array for array in description.arrays}
    arrays = [stored[entry.name] for entry in description.fields]
    fields = [
        replace(entry, chunk=list(array.chunks) if array.chunks else None)
        for entry, array in zip(description.fields, arrays, strict=True)
    ]
    options = {**description.options, **_compression(arrays)}
    evidence = {}
    if (opens := reads.opens_per_sample()) > _OFTEN:
        options["reopen"] = "file"
        evidence["reopen"] = f"{opens:.2f} opens for each sample"
    return Recreation(tuple(fields), options, evidence=evidence, differences=tuple(_differences(arrays, options)))


def _compression(arrays: Sequence[StoredArray]) -> dict[str, Any]:
    """Filter of the arrays, and the share of constant content with which they take as many bytes."""
    compressed = [array for array in arrays if _codec(array)]
    if not compressed:
        return {}
    codec = _codec(compressed[0])
    options: dict[str, Any] = {"compression": codec}
    level = _GZIP.search(compressed[0].compression)
    if level is not None:
        options["compression_level"] = int(level[1])
    full = sum(_bytes(array) for array in compressed)
    kept = sum(array.stored_bytes or 0 for array in compressed)
    return options | {"compressibility": round(min(max(1 - kept / full, 0.0), 1.0), 3)} if full else options


def _codec(array: StoredArray) -> str:
    """``gzip``, ``lzf`` or empty."""
    return "gzip" if _GZIP.search(array.compression) else _LZF if _LZF in array.compression else ""


def _bytes(array: StoredArray) -> int:
    return int(np.prod(array.shape or (0,))) * np.dtype(array.dtype).itemsize


def _differences(arrays: Sequence[StoredArray], options: dict[str, Any]) -> Iterator[str]:
    for array in arrays:
        if array.chunks is None and options.get("compression"):
            yield f"array {array.name} is stored without chunks, others are compressed"
        others = _GZIP.sub("", array.compression).replace(_LZF, "").strip(" ,")
        if others:
            yield f"array {array.name} has the filter {others}, which generated files do not have"
