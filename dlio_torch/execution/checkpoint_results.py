"""Writes and prints the results of the verb ``checkpoint`` on rank 0: ``summary.json``, the trace, the tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlio_torch import __version__
from dlio_torch.analysis.standalone_checkpoints import SCHEMA, VERSION, ColdLoad, RankCheckpoints, standalone_figures
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.execution.context import RunContext
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.timeline.chrome_trace import write_trace
from dlio_torch.preflight.checkpoint_plan import CheckpointPlan
from dlio_torch.report.standalone_text import print_checkpoints
from dlio_torch.run_directory.run_dir import RunDir


def write_checkpoint_results(
    context: RunContext,
    plan: CheckpointPlan,
    directory: RunDir,
    folder: Path,
    ranks: Sequence[RankCheckpoints],
    loads: Sequence[ColdLoad],
) -> None:
    """Write and print the results.

    Args:
        context: the run.
        plan: what was carried out.
        directory: the run directory.
        folder: of the checkpoints.
        ranks: results of all ranks.
        loads: state of the page cache before each load.

    Raises:
        DlioError: a file cannot be written.
    """
    summary = _summary(context, plan, folder, ranks, loads)
    directory.write_json(directory.summary, summary)
    if plan.config.trace.spans or plan.config.trace.posix:
        write_trace(read_events(directory.events), directory.trace)
    if context.detail == "json":
        print(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_checkpoints(summary, sys.stdout, directory.path)


def _summary(
    context: RunContext,
    plan: CheckpointPlan,
    folder: Path,
    ranks: Sequence[RankCheckpoints],
    loads: Sequence[ColdLoad],
) -> dict[str, Any]:
    config, comm = plan.config, context.comm
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "dlio_torch": __version__,
        "recipe": config.recipe,
        "scale": config.scale.name,
        "scaled": context.composed.notes,
        "world_size": comm.world_size,
        "ranks_by": {"backend": comm.name, "detail": comm.detail, "settings": dict(comm.settings)},
        "checkpoints": {
            "layout": config.checkpoint.layout,
            "saving_ranks": len(plan.sizes),
            "fsync": config.checkpoint.fsync,
            "keep": config.checkpoint.keep,
            "kept": len(plan.kept),
            "folder": str(folder),
            **standalone_figures(ranks, loads, describe_mount("", folder, {})),
        },
    }
