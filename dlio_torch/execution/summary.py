"""Writes the results of all ranks on rank 0: ``summary.json``, ``steps.csv``, trace and report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlio_torch import __version__
from dlio_torch.analysis.cache import cache_summary, counts_device
from dlio_torch.analysis.collect import RankResult, collect
from dlio_torch.data.dataset.checksum import known_checksum
from dlio_torch.data.dataset.manifest import data_folder
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.limit_run import limit_of_loader, store_limit
from dlio_torch.execution.phase_results import TrainedRun, WrittenRun
from dlio_torch.execution.results import write_results


def write_summary(context: RunContext, trained: TrainedRun, ranks: list[RankResult]) -> dict[str, Any]:
    """Write and print the results of a run.

    Args:
        context: the run.
        trained: what this rank has trained.
        ranks: results of all ranks.

    Returns:
        Content of ``summary.json``.

    Raises:
        DlioError: a file cannot be written.
    """
    written, cache = trained.written, trained.cache
    config = written.planned.prepared.config
    # The kernel does not count the bytes that cuFile reads.
    counted = context.format.needs_files and config.loader.read_to == "host"
    # Nor those that io_uring reads, but bytes of devices are counted.
    by_calls = not any(rank.loader_io is not None and rank.loader_io["by"] == "io_uring" for rank in ranks)
    in_memory = config.loader.in_memory or config.loader.replay in ("samples", "batches")
    summary = collect(
        config,
        ranks,
        reads_files=counted and not in_memory,
        reads_by_calls=by_calls,
        device=counts_device(written.mount),
        size=cache.size if cache is not None else None,
        prepared=cache.prepared if cache is not None else (),
        about={**_about(context, written), "calibration": trained.calibration.to_dict()},
    )
    summary["cache"] = None
    if cache is not None:
        epochs = [] if in_memory or not counted or not by_calls else summary["epochs"]
        can_read_direct = context.format.reads_direct
        summary["cache"] = cache_summary(
            config, cache.goal, cache.size, cache.prepared, epochs, written.mount, can_read_direct=can_read_direct
        )
    summary["au_limit_of_loader"] = limit_of_loader(context, config, summary)
    with context.watchdog("the results to be written"):
        summary = write_results(
            written.directory,
            config,
            summary,
            {rank: result.train.steps for rank, result in enumerate(ranks)},
            context.detail,
        )
        store_limit(written.directory, config, summary)
    return summary


def _about(context: RunContext, written: WrittenRun) -> dict[str, Any]:
    """Entries of the summary that describe the run: version, ranks, scaling, data set, generation, resume."""
    prepared, resume, comm = written.planned.prepared, written.planned.resume, context.comm
    config = prepared.config
    path, folder = config.dataset.path, data_folder(config, context.format)
    return {
        "dlio_torch": __version__,
        "ranks_by": {"backend": comm.name, "detail": comm.detail, "settings": dict(comm.settings)},
        "scaled": context.composed.notes,
        "adjusted": context.composed.adjusted,
        "dataset": {
            "format": context.format.name,
            "path": str(Path(path or folder).absolute()),
            "real_input": path is not None,
            "layout": prepared.details,
            "sha256": known_checksum(folder) if path is None else None,
        },
        "generate": asdict(written.generated) if written.generated is not None else None,
        "resumed": resume.to_dict() if resume is not None else None,
    }
