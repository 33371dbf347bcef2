"""Description of a file of framed records."""

from __future__ import annotations

from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion
from framed_format.facts import HEADER


def describe(path: Path) -> DataDescription:
    """The header names the bytes of a record, and not its arrays."""
    head = path.read_bytes()[: HEADER.size]
    if len(head) < HEADER.size:
        raise DataError(f"{path}: the header is cut off", hint="replace the file")
    _, frames, size = HEADER.unpack(head)
    question = OpenQuestion(
        f"the arrays in a record of {size} bytes are unknown",
        f"dataset.fields=[{{name: data, dtype: uint8, shape: [{size}]}}]",
    )
    return DataDescription(samples=frames, questions=(question,), details={"record_bytes": size})
