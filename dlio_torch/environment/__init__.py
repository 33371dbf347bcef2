"""The machine under a run: what it is, what its file systems are, what was read and what was cached."""

from dlio_torch.environment.io import IoCounters, io_counters
from dlio_torch.environment.machine import describe
from dlio_torch.storage.local.page_cache import cached_share, cached_shares

__all__ = ["IoCounters", "cached_share", "cached_shares", "describe", "io_counters"]
