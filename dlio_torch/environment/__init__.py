"""The machine under a run: what it is, what its file systems are, what was read and what was cached."""

from dlio_torch.environment.io import IoCounters, cached_share, io_counters
from dlio_torch.environment.machine import describe

__all__ = ["IoCounters", "cached_share", "describe", "io_counters"]
