"""Sizes of reads and caches to try in a study, in command-line syntax."""

from __future__ import annotations

from dlio_torch.units import exact_size, parse_size

TRANSFERS = ("64KiB", "256KiB", "1MiB", "4MiB")
"""Sizes of one read call."""
CACHES = ("1MiB", "16MiB", "128MiB")
"""Sizes of a chunk cache."""


def sizes(usual: tuple[str, ...], present: int) -> tuple[str, ...]:
    """The given sizes and the current size, in ascending order.

    Args:
        usual: sizes with units.
        present: bytes; 0: the library decides, which is no size.
    """
    values = {parse_size(text) for text in usual} | ({present} if present else set())
    return tuple(exact_size(size) for size in sorted(values))
