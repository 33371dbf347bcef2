"""Measures the limit of the loader after a run: starts the same training with ``loader.replay=reads``.

The further run has processes of its own, as many ranks as this run, which communicate in the same way, and a temporary
run directory, of which only the limit is kept.  Its failure is a reason why there is no limit, and no failure of this
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlio_torch.analysis.loader_limit import (
    UNKNOWN,
    LoaderLimit,
    bounded,
    is_measured_by,
    measuring_config,
    why_no_limit,
)
from dlio_torch.analysis.stored_loader_limits import key, store, stored
from dlio_torch.config.emit import to_yaml
from dlio_torch.config.schema import Config
from dlio_torch.dist.launcher import without_launcher
from dlio_torch.dist.node_launcher import node_launcher
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.execution.context import RunContext
from dlio_torch.files.locked_folder import temporary_folder
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.supervision.run_process import emulator, environment, run_process

_LONGEST = 20.0  # times the elapsed time of this run
_LEAST_S = 300.0
_SHARE_OF_TIMEOUT = 0.8  # the other ranks wait in a collective meanwhile


def limit_of_loader(context: RunContext, config: Config, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part ``au_limit_of_loader`` of ``summary.json``; measures the limit if ``loader.limit`` requests it.

    Args:
        context: the run.
        config: the resolved configuration.
        summary: result of :func:`dlio_torch.analysis.collect.collect`, with ``cache``.
    """
    why, mode = why_no_limit(config, summary), config.loader.limit
    if why is not None:
        return {**UNKNOWN, "why": why}
    name = key(config, summary)
    limit = None if mode == "remeasure" else stored(name)
    if limit is None and mode == "stored":
        return {**UNKNOWN, "why": "no such run in the last 24 hours", "hint": "set loader.limit=measure"}
    try:
        limit = limit or _measured(context, config, summary)
    except (DlioError, OSError) as error:
        return {**UNKNOWN, "why": f"the limit of the loader cannot be measured: {error}"}
    store(name, limit)
    return limit.figures()


def store_limit(directory: RunDir, config: Config, summary: Mapping[str, Any]) -> None:
    """Store the limit that this run itself has measured, for runs with the same loader; a damaged folder is no error.

    Args:
        directory: the run directory, with its events.
        config: the resolved configuration.
        summary: the complete summary.
    """
    if config.loader.limit != "off" and is_measured_by(config, summary):
        store(key(config, summary), LoaderLimit.of_run(summary, read_events(directory.events).frame))


def _measured(context: RunContext, config: Config, summary: Mapping[str, Any]) -> LoaderLimit:
    """Run the same training with reads from memory.

    Raises:
        DlioError: it cannot run, or failed.
        OSError: its files cannot be written.
    """
    if problem := _why_not_now(context, summary):
        raise PreconditionError(problem)
    steps = summary["train"]["steps"] + summary["warmup"]["steps"]
    train = bounded(config.train, steps, config.loader.limit_steps)
    context.note("measuring the limit of the loader: the same training with loader.replay=reads")
    with temporary_folder() as folder, context.watchdog("the limit of the loader to be measured"):
        return _run(replace(measuring_config(config), train=train), folder, context, summary)


def _run(config: Config, folder: Path, context: RunContext, summary: Mapping[str, Any]) -> LoaderLimit:
    directory, recipe = RunDir(folder / "run"), folder / "config.yaml"
    output = replace(config.output, dir=str(directory.path))
    recipe.write_text(to_yaml(replace(config, output=output)), encoding="utf-8")
    command = emulator(["train", f"recipe={recipe}"], context.comm.world_size, node_launcher(context.comm))
    timeout_s = max(_LEAST_S, _LONGEST * summary["train"]["elapsed_s"])
    if context.comm.world_size > 1:
        timeout_s = min(timeout_s, _SHARE_OF_TIMEOUT * config.dist.timeout_s)
    ended = run_process(command, folder / "log", timeout_s=timeout_s, environ=without_launcher(environment()))
    if ended.exit_code:
        raise PreconditionError(ended.error)
    measured = directory.read_json(directory.summary)
    if measured["au"]["mean"] is None:
        raise PreconditionError(measured["au"]["why"])
    return LoaderLimit.of_run(measured, read_events(directory.events).frame)


def _why_not_now(context: RunContext, summary: Mapping[str, Any]) -> str:
    """Reason why the run that measures the limit cannot be started; empty: it can."""
    if context.elastic is not None:
        return "the ranks of an elastic run come and go"
    if summary["cache"]["fits_in_memory"] is False:
        return "the data do not fit into memory, from which reads would be answered"
    return ""
