"""Options that generate Parquet files like existing ones: rows of a row group, codec and size of the columns."""

from __future__ import annotations

from typing import Any

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation

_CODECS = ("snappy", "gzip", "zstd")


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    fields = {entry.name for entry in description.fields}
    codecs = [array.compression for array in description.arrays if array.name in fields]
    codec = next((name for name in codecs if name), "none")
    options: dict[str, Any] = {
        **description.options,
        "row_group_samples": max(1, int(description.details["row_group_samples"])),
        "compression": codec if codec in _CODECS else "none",
    }
    others = sorted({array.name for array in description.arrays} - fields)
    differences = [f"the column {name} is not generated" for name in others]
    if codec not in (*_CODECS, "none"):
        differences.append(f"columns are compressed by {codec}, generated ones are not compressed")
    return Recreation(description.fields, options, differences=tuple(differences))
