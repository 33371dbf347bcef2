"""Size of the prefetch window: what is read ahead should still be in the processor's cache when it is used."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.environment.topology.processors import last_level_cache

_LEAST = 16 << 20  # several batches: a smaller window would leave reader threads without work
_UNKNOWN = 24 << 20


def with_window(config: LoaderConfig) -> LoaderConfig:
    """The options with the size of the window in bytes, where ``prefetch_bytes`` leaves it to the engine."""
    return config if config.prefetch_bytes else replace(config, prefetch_bytes=window_of_machine())


@cache
def window_of_machine() -> int:
    """Three quarters of the last-level cache in bytes, at least 16 MiB; 24 MiB if the system does not show a cache."""
    size = last_level_cache()
    return _UNKNOWN if size is None else max(_LEAST, size // 4 * 3)
