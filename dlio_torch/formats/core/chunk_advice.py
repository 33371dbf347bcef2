"""Advice for arrays whose chunks are larger than a sample, so that reading a sample reads its neighbours, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dlio_torch.formats.core.facts import LayoutAdvice
from dlio_torch.formats.core.field_bytes import chunk_bytes, field_bytes
from dlio_torch.units import exact_size, format_size

if TYPE_CHECKING:
    from dlio_torch.config.schema import FieldConfig

_TOLERATED = 1.2  # bytes of a chunk for each byte of a sample


def larger_chunks(fields: Sequence[FieldConfig], default: int) -> Iterator[tuple[int, int, str]]:
    """Yields the number of each field whose chunks are larger than a sample, the bytes of a chunk, and both as text.

    Args:
        fields: arrays of a sample.
        default: bytes of a chunk of a field that sets no chunk shape; 0: no chunks.
    """
    for number, field in enumerate(fields):
        size, chunk = field_bytes(field), chunk_bytes(field, default)
        if size and chunk >= _TOLERATED * size:
            yield number, chunk, f"chunks have {format_size(chunk)} but samples only {format_size(size)}"


def chunk_of_a_sample(fields: Sequence[FieldConfig], number: int, key: str, reason: str) -> LayoutAdvice:
    """The advice to store each sample in a chunk of its own.

    Args:
        fields: arrays of a sample.
        number: of the field.
        key: of the option with the bytes of a chunk, for a field that sets no chunk shape.
        reason: what causes the read amplification today.
    """
    field = fields[number]
    if field.chunk is not None:
        shape = ",".join(map(str, (1, *field.shape)))
        return LayoutAdvice(f"dataset.fields.{number}.chunk", f"[{shape}]", reason)
    return LayoutAdvice(key, exact_size(field_bytes(field)), reason)
