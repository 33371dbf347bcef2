"""Size of the prefetch window: what is read ahead should still be in the processor's cache when it is used."""

from __future__ import annotations

import math
from functools import cache

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.environment.topology.processors import last_level_cache

_LEAST = 16 << 20  # several batches: a smaller window would leave reader threads without work
_UNKNOWN = 24 << 20
BATCHES = 2
"""Batches of each worker for which there is room: it makes one while the other waits for its turn."""


def window_of(config: LoaderConfig, batch_bytes: float) -> int:
    """Bytes that the reader threads of a process may be ahead of the trainer: of a rank, or of each of its workers.

    Args:
        config: the options of ``loader``.
        batch_bytes: bytes of a batch.
    """
    shares = max(1, config.num_workers)
    if config.prefetch_bytes:
        return max(1, config.prefetch_bytes // shares)
    least = BATCHES * math.ceil(batch_bytes) if config.num_workers else 0
    return max(window_of_machine() // shares, least)


@cache
def window_of_machine() -> int:
    """Three quarters of the last-level cache in bytes, at least 16 MiB; 24 MiB if the system does not show a cache."""
    size = last_level_cache()
    return _UNKNOWN if size is None else max(_LEAST, size // 4 * 3)
