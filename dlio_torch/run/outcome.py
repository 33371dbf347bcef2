"""What all ranks have found, brought together on rank 0."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlio_torch import __version__
from dlio_torch.analysis.cache import cache_summary, counts_device
from dlio_torch.analysis.collect import RankResult, collect
from dlio_torch.compute.calibrate import Calibration
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.checksum import known_checksum
from dlio_torch.data.dataset.generation import Generated
from dlio_torch.results import write_results
from dlio_torch.run.setting import Setting
from dlio_torch.rundir import RunDir
from dlio_torch.storage.cache_state import CacheKeeper


def finish(
    run: Setting,
    directory: RunDir,
    everyone: list[RankResult],
    made: Generated | None,
    keeper: CacheKeeper | None,
    calibration: Calibration,
) -> dict[str, Any]:
    """Write what all ranks have found, and print it."""
    config = run.config
    about = {
        "dlio_torch": __version__,
        "ranks_by": {"backend": run.comm.name, "detail": run.comm.detail, "settings": dict(run.comm.settings)},
        "scaled": run.composed.notes,
        "adjusted": run.composed.adjusted,
        "dataset": {
            "format": run.format.name,
            "path": str(Path(config.dataset.path or layout.data_folder(config, run.format)).absolute()),
            "real_input": config.dataset.path is not None,
            "layout": run.details,
            "sha256": known_checksum(layout.data_folder(config, run.format)) if config.dataset.path is None else None,
        },
        "generate": asdict(made) if made is not None else None,
        "resumed": run.resumed.about() if run.resumed is not None else None,
        "calibration": calibration.to_dict(),
    }
    in_memory = config.loader.in_memory or config.loader.replay in ("samples", "batches")
    summary = collect(
        config,
        everyone,
        reads_files=run.format.needs_files and not in_memory,
        device=counts_device(run.mount),
        size=keeper.size if keeper is not None else None,
        prepared=keeper.prepared if keeper is not None else (),
        about=about,
    )
    summary["cache"] = None
    if keeper is not None:
        epochs = [] if in_memory else summary["epochs"]
        direct = run.format.reads_direct
        summary["cache"] = cache_summary(
            config, keeper.size, keeper.prepared, epochs, run.mount, can_read_direct=direct
        )
    return write_results(directory, config, summary, {rank: one.train.steps for rank, one in enumerate(everyone)})
