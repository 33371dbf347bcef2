"""Options that generate text tables like existing ones: header, delimiter, and the length of a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation

_HEAD_BYTES = 1 << 20
_LEAST_CHARS = 3.0


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    options: dict[str, Any] = dict(description.options)
    columns = options.pop("columns", None)  # of the existing file; generated ones have the fields alone
    options["value_chars"] = round(
        max(_LEAST_CHARS, _value_chars(reads.files[0], int(description.details["columns"]))), 2
    )
    differences = () if columns is None else ("columns of text are generated as no columns",)
    return Recreation(description.fields, options, differences=differences)


def _value_chars(path: Path, columns: int) -> float:
    """Mean characters of a value in the first rows, without its separator."""
    with open(path, "rb") as file:
        lines = file.read(_HEAD_BYTES).split(b"\n")[1:-1] or [b""]
    return sum(len(line) + 1 for line in lines) / len(lines) / columns - 1
