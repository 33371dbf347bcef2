"""Summary of all ranks' readers: start method, memory and CPUs of worker processes and reader threads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.train.readers import ReaderFigures

_ENDED = "the run ended before its first measured epoch did"


def reader_summary(config: Config, ranks: Sequence[ReaderFigures | None]) -> dict[str, Any]:
    """Builds ``workers`` of ``summary.json``.

    Args:
        config: the experiment.
        ranks: figures of the ranks at the end of their first measured epoch; ``None`` for a rank without readers.
    """
    known = [figures for figures in ranks if figures is not None]
    has_workers = config.loader.num_workers > 0 and config.loader.replay != "batches"
    count = sum(len(figures.workers) for figures in known)
    why: dict[str, str] = {}
    memory = _memory(known, has_workers, why)
    if not known:
        why["affinity"] = _ENDED if has_workers else "no worker or reader thread was running"
    return {
        "start_method": _start_method(config) if has_workers else None,
        "count": count if known or not has_workers else None,
        "pss_bytes": memory,
        "placed": config.loader.affinity != "none",
        "affinity": [_affinity(rank, figures) for rank, figures in enumerate(ranks) if figures is not None] or None,
        "why": why,
    }


def _start_method(config: Config) -> str:
    return config.loader.multiprocessing_context or multiprocessing.get_start_method()


def _memory(known: Sequence[ReaderFigures], has_workers: bool, why: dict[str, str]) -> dict[str, float] | None:
    sizes = [size for figures in known for size in figures.pss_bytes if size is not None]
    if sizes:
        return {"mean": sum(sizes) / len(sizes), "max": max(sizes)}
    why["pss_bytes"] = "the loader has no worker processes"
    if has_workers:
        why["pss_bytes"] = "the workers had ended, or /proc/PID/smaps_rollup cannot be read" if known else _ENDED
    return None


def _affinity(rank: int, figures: ReaderFigures) -> dict[str, Any]:
    return {
        "rank": rank,
        "workers": [cpus or None for cpus in figures.workers],
        "threads": [cpus or None for cpus in figures.threads],
        "trainer": figures.trainer,
    }
