"""Figures of the verb ``checkpoint``: times of saves and loads, and the proof that loads read the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlio_torch.analysis.cache import counts_device
from dlio_torch.analysis.checkpoint_figures import checkpoint_figures
from dlio_torch.analysis.checkpoint_part import peak_memory
from dlio_torch.analysis.distribution import distribution
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.storage.cache_state import CachePreparation, FileShares
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS

SCHEMA = "dlio_torch.checkpoint"
"""Format of ``summary.json`` of the verb ``checkpoint``."""
VERSION = "1"
_UNCOUNTED = "the kernel does not count the bytes that the device of this file system delivers"


@dataclass(frozen=True)
class RankCheckpoints:
    """Measurements of one rank.

    Attributes:
        saves: its saves; empty on a rank that does not save.
        restores: its loads, in their order; likewise.
        start_bytes: bytes written before the first save.
        device_bytes: bytes that block devices delivered to this process in each load; ``None``: not known.
        peak_bytes: largest memory that the saves took; ``None``: not known.
    """

    saves: list[SaveTimes]
    restores: list[RestoreTimes]
    start_bytes: int
    device_bytes: list[int | None]
    peak_bytes: int | None


@dataclass(frozen=True)
class ColdLoad:
    """Page cache of all checkpoints right before a load.

    Attributes:
        step: of the checkpoint that is read.
        preparation: how the checkpoints were dropped from the page cache.
        shares: cached shares of single files after that.
    """

    step: int
    preparation: CachePreparation
    shares: FileShares

    @property
    def is_cold(self) -> bool | None:
        """Whether no file is in the page cache; ``None``: not known."""
        if not self.shares.measured:
            return None
        return bool(self.preparation.reached) and not self.shares.cached


def standalone_figures(
    ranks: Sequence[RankCheckpoints], loads: Sequence[ColdLoad], mount: Mapping[str, Any]
) -> dict[str, Any]:
    """Figures of ``checkpoints`` in the summary: parts ``save``, ``restore`` and ``page_cache``, bytes and memory.

    Args:
        ranks: results of all ranks, in their order.
        loads: page cache before each load.
        mount: description of the file system of the checkpoints, as in ``environment.json``.
    """
    restores = [rank.restores for rank in ranks]
    device = _device_bytes(ranks, len(loads)) if counts_device(mount) else [None] * len(loads)
    read = [sum(restore.bytes for restore in load) for load in zip(*filter(None, restores), strict=True)]
    return {
        "start_bytes": sum(rank.start_bytes for rank in ranks),
        "slowdown": None,
        "slowdown_why": "no step was trained",
        "slowdown_ci95": None,
        "slowdown_ci95_why": "no step was trained",
        **peak_memory([rank.peak_bytes for rank in ranks], saved=True),
        **checkpoint_figures([rank.saves for rank in ranks], restores),
        "page_cache": _page_cache(loads, device, sum(read)) | _memory(mount["file_system"]),
    }


def _device_bytes(ranks: Sequence[RankCheckpoints], loads: int) -> list[int | None]:
    """Bytes that devices delivered to all ranks, for each load."""
    by_load = ([rank.device_bytes[number] for rank in ranks if rank.restores] for number in range(loads))
    return [None if None in sizes else sum(size for size in sizes if size is not None) for sizes in by_load]


def _page_cache(loads: Sequence[ColdLoad], device: Sequence[int | None], read: int) -> dict[str, Any]:
    known = [size for size in device if size is not None]
    counted = known if len(known) == len(loads) else []
    cold = [load.is_cold for load in loads]
    return {
        "cold": None if not cold or None in cold else all(cold),
        "why": next((load.preparation.why for load in loads if load.preparation.why), None),
        "device_bytes": distribution(counted),
        "device_share": min(1.0, sum(counted) / read) if counted and read else None,
        "device_why": None if counted else ("nothing was read" if not loads else _UNCOUNTED),
        "loads": [_load(load, size) for load, size in zip(loads, device, strict=True)],
    }


def _memory(kind: str | None) -> dict[str, Any]:
    """Entries for a file system that is itself memory; empty for another."""
    return {"cold": False, "why": f"{kind} keeps its files in memory"} if kind in MEMORY_FILE_SYSTEMS else {}


def _load(load: ColdLoad, device_bytes: int | None) -> Mapping[str, Any]:
    preparation = load.preparation
    return {
        "step": load.step,
        "attempts": preparation.attempts,
        "seconds": preparation.seconds,
        "cached_share_before": preparation.cached_share_before,
        "cached_share": preparation.cached_share,
        "files": load.shares.measured,
        "cached_files": load.shares.cached if load.shares.measured else None,
        "largest_cached_share": load.shares.largest,
        "device_bytes": device_bytes,
    }
