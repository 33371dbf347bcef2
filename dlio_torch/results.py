"""What a run leaves when it is done: figures, steps, the merged trace, and the text on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis import stalls
from dlio_torch.analysis.advice.advise import advise, gather
from dlio_torch.analysis.io.metrics import analyse
from dlio_torch.analysis.io.mpiio import beside
from dlio_torch.analysis.overlap import overlap
from dlio_torch.analysis.storage import against_limit
from dlio_torch.config.schema import Config
from dlio_torch.errors import DataError
from dlio_torch.report.console import print_report
from dlio_torch.report.expect import compare
from dlio_torch.rundir import RunDir
from dlio_torch.trace.calls import CLASSES
from dlio_torch.trace.chrome import write_trace
from dlio_torch.trace.events import read_events
from dlio_torch.trace.horovod import Timeline, read_timeline
from dlio_torch.trace.recording import Recording
from dlio_torch.train.steps import Steps, write_steps


def write_results(
    directory: RunDir, config: Config, summary: dict[str, Any], steps: Mapping[int, Steps]
) -> dict[str, Any]:
    """Write what all ranks have found, and print it.

    Args:
        directory: the run directory.
        config: the resolved configuration.
        summary: what :func:`dlio_torch.analysis.collect.collect` gave.
        steps: the records of each rank's steps.

    Returns:
        The summary with what the events say: ``posix`` (the I/O calls, where they were recorded), ``overlap``
        (rows per rank, -1: over all) and ``stalls``, None where that was not recorded; ``storage`` (how near the run
        came to what the storage gives); and ``advice``.  ``mpi_io`` gets the calls that MPI-IO itself made.
    """
    events = read_events(directory.events)
    environment = directory.read_json(directory.environment)
    recorded = Recording(
        directory.path,
        "run",
        events,
        sees=frozenset(CLASSES) if config.trace.posix else frozenset(),
        world_size=len(steps),
        facts={"environment": environment},
    )
    met = overlap(recorded)
    posix = analyse(recorded) if config.trace.posix else None
    summary = {
        **summary,
        "posix": posix,
        "mpi_io": beside(summary["mpi_io"], events.frame if config.trace.posix else None, _read_from(summary)),
        "storage": against_limit(summary, config, posix),
        "overlap": None if met is None else met.astype(object).where(met.notna(), None).to_dict("records"),
        "stalls": stalls.summary(stalls.attribute(recorded), config.train.warmup_steps) if config.trace.spans else None,
    }
    summary["advice"] = advise(gather(summary, config, environment, recorded, steps))
    directory.write_json(directory.summary, summary)
    write_steps(directory.steps(), steps)
    for rank in steps:
        directory.steps(rank).unlink(missing_ok=True)
    trace = config.trace
    if trace.spans or trace.posix or trace.horovod:
        profiles = sorted(directory.tensorboard.glob("*.pt.trace.json*"))
        timeline = _timeline(directory) if trace.horovod else None
        write_trace(events, directory.trace, profiler_traces=profiles, horovod=timeline)
    print_report(summary, stream=sys.stdout, run_dir=directory.path, expect=compare(config.expect, summary))
    return summary


def _timeline(directory: RunDir) -> Timeline | None:
    """Horovod's timeline; a finished run is not lost with it."""
    try:
        return read_timeline(directory.horovod)
    except DataError as error:
        print(f"trace.horovod: {error}", file=sys.stderr)
        return None


def _read_from(summary: Mapping[str, Any]) -> list[str]:
    """The folders that the ranks read from: copies where there are any."""
    staged = summary.get("stage")
    return [summary["dataset"]["path"]] if staged is None else [rank["folder"] for rank in staged["ranks"]]
