"""Results of a run on rank 0: summary, step table, merged trace, and the report on the console."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dlio_torch.analysis import stalls
from dlio_torch.analysis.advice.advise import advise, gather
from dlio_torch.analysis.storage_share import against_limit
from dlio_torch.analysis.storage_utilisation import au_of_storage
from dlio_torch.config.compose import Detail
from dlio_torch.config.schema import Config
from dlio_torch.errors import DataError, DlioError, MissingPackageError
from dlio_torch.iotrace.events.budget_file import SpentBudget
from dlio_torch.iotrace.events.call_names import CLASSES
from dlio_torch.iotrace.events.event_files import ENDED_EARLY
from dlio_torch.iotrace.events.event_table import EventTable, read_events
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.io_metrics import analyse
from dlio_torch.iotrace.figures.mpiio_calls import compare_with_requests
from dlio_torch.iotrace.figures.overlap import overlap
from dlio_torch.iotrace.timeline.chrome_trace import write_trace
from dlio_torch.iotrace.timeline.horovod_timeline import Timeline, read_timeline
from dlio_torch.report.expect import compare
from dlio_torch.report.run_tables import print_report
from dlio_torch.report.tensorboard_scalars import write_scalars
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.syserrors import refused, silence_output, warn
from dlio_torch.train.steps import EVAL, Steps, journal_of, write_steps


def write_results(
    directory: RunDir, config: Config, summary: dict[str, Any], steps: Mapping[int, Steps], detail: Detail = "normal"
) -> dict[str, Any]:
    """Write the results of all ranks, and print them.

    Args:
        directory: the run directory.
        config: the resolved configuration.
        summary: result of :func:`dlio_torch.analysis.collect.collect`.
        steps: step records of each rank.
        detail: what is printed.

    Returns:
        The summary with figures from the events: ``posix`` (I/O calls), ``overlap`` (rows per rank, -1 for all ranks)
        and ``stalls``, each None if its events were not recorded; ``storage`` (achieved share of the storage's limit);
        ``trace`` (for each rank the step at which its events end before the run does); and ``advice``.  ``mpi_io``
        includes the calls of MPI-IO itself.
    """
    events = read_events(directory.events)
    try:
        environment = directory.read_json(directory.environment)
    except DataError as error:  # the folder may be deleted, but the figures are in memory
        warn(str(error))
        environment = {}
    recorded = Recording(
        directory.path,
        "run",
        events,
        sees=frozenset(CLASSES) if config.trace.posix else frozenset(),
        world_size=len(steps),
        facts={"environment": environment},
    )
    whole = config.trace.spans and not _lacks_spans(events, len(steps))
    met = overlap(recorded) if whole or not config.trace.spans else None
    posix = analyse(recorded) if config.trace.posix else None
    summary = {
        **summary,
        "posix": posix,
        "mpi_io": compare_with_requests(
            summary["mpi_io"], events.frame if config.trace.posix else None, _read_from(summary)
        ),
        "storage": against_limit(summary, config, posix),
        "au_of_storage": au_of_storage(summary, config, recorded if whole else None, steps, _read_from(summary)),
        "overlap": None if met is None else met.astype(object).where(met.notna(), None).to_dict("records"),
        "stalls": stalls.summary(stalls.attribute(recorded), config.train.warmup_steps) if whole else None,
    }
    summary["trace"] = [_traced(spent, steps.get(spent.rank)) for spent in events.spent]
    summary["advice"] = advise(gather(summary, config, environment, recorded, steps))
    failed = list(_written(directory, config, summary, steps, events))
    above = "; the figures are printed above"
    try:
        if detail == "json":
            print(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            expect = compare(config.expect, summary)
            verbose = detail == "verbose"
            print_report(summary, stream=sys.stdout, run_dir=directory.path, expect=expect, verbose=verbose)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # stdout may be a file on the same full disk
        silence_output()
        above = ""
        failed.append(("the standard output", refused("the figures cannot be printed", error)))
    if config.trace.spans and not whole:
        warn("spans of some processes are missing, so the report shows neither overlap nor causes of waits")
    if failed:
        first, *others = failed
        missing = f"; these files cannot be written either: {', '.join(name for name, _ in others)}" if others else ""
        raise type(first[1])(f"{first[1].message}{missing}{above}", hint=first[1].hint)
    return summary


def _written(
    directory: RunDir, config: Config, summary: dict[str, Any], steps: Mapping[int, Steps], events: EventTable
) -> Iterator[tuple[str, DlioError]]:
    """Write the files; yields the name and error of each file that cannot be written."""

    def write_trace_file() -> None:
        profiles = sorted(directory.tensorboard.glob("*.pt.trace.json*"))
        timeline = _timeline(directory) if config.trace.horovod else None
        write_trace(events, directory.trace, profiler_traces=profiles, horovod=timeline)

    def write_steps_file() -> None:
        write_steps(directory.steps(), steps)
        for rank in steps:
            with contextlib.suppress(OSError):
                directory.steps(rank).unlink(missing_ok=True)
                journal_of(directory.steps(rank)).unlink(missing_ok=True)

    def write_scalars_of_ranks() -> None:
        try:
            write_scalars(directory.tensorboard, steps, emulates=config.compute.emulated)
        except MissingPackageError as error:
            warn(f"{error.message}: {error.hint}")

    writers: dict[Path, Callable[[], None]] = {
        directory.summary: lambda: directory.write_json(directory.summary, summary),
        directory.steps(): write_steps_file,
    }
    if config.trace.spans or config.trace.posix or config.trace.horovod:
        writers[directory.trace] = write_trace_file
    if config.trace.profiler:
        writers[directory.tensorboard] = write_scalars_of_ranks
    for path, write in writers.items():
        try:
            write()
        except DlioError as error:
            yield path.name, error


def _lacks_spans(events: EventTable, world_size: int) -> bool:
    """Whether the spans of a process are incomplete."""
    trainers = {process.rank for process in events.processes if process.role == "trainer"}
    return len(trainers) < world_size or any(part.reason == ENDED_EARLY for part in events.skipped)


def _traced(spent: SpentBudget, steps: Steps | None) -> dict[str, Any]:
    """Size of a rank's events, and the last step before recording stopped; None if all steps are recorded."""
    last = None
    if spent.full_ns and steps is not None:
        before = steps[(steps["start_ns"] <= spent.full_ns) & (steps["phase"] != EVAL)]
        last = (int(before["epoch"][-1]), int(before["step"][-1])) if len(before) else (1, 0)
    epoch, step = last if last is not None else (None, None)
    return {
        "rank": spent.rank,
        "limit_bytes": spent.limit_bytes,
        "limit_files": spent.limit_files,
        "bytes": spent.bytes,
        "files": spent.files,
        "ends": spent.full_ns != 0,
        "last_epoch": epoch,
        "last_step": step,
    }


def _timeline(directory: RunDir) -> Timeline | None:
    """Reads Horovod's timeline; a damaged timeline is reported, and the run still succeeds."""
    try:
        return read_timeline(directory.horovod)
    except DataError as error:
        print(f"trace.horovod: {error}", file=sys.stderr)
        return None


def _read_from(summary: Mapping[str, Any]) -> list[str]:
    """Folders from which the ranks read: staged copies if there are any, else the data set."""
    staged = summary.get("stage")
    return [summary["dataset"]["path"]] if staged is None else [rank["folder"] for rank in staged["ranks"]]
