"""Opens the recording of a run, of a program recorded by the verb ``trace``, or of another tool's log."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from dlio_torch.analysis.compared_figures import compared_figures
from dlio_torch.errors import DataError, DlioError
from dlio_torch.iotrace.events.recording import Kind, Recording
from dlio_torch.iotrace.importers import any_log
from dlio_torch.iotrace.importers.event_folder import is_event_folder, read_event_folder
from dlio_torch.ownership.marker import marked_kind
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir

LIMITS = ("au_limit_of_loader", "au_of_storage")
"""Entries of ``summary.json``: utilisation that the loader and the storage allow, each alone."""
_ENTRIES = 1000  # entries of a folder that are searched for runs
_NAMED = 5  # runs that an error names


def open_recording(path: Path | str) -> Recording:
    """Reads the recording at a path.

    Args:
        path: a run directory, a folder of the verb ``trace``, or what
            :func:`dlio_torch.iotrace.importers.any_log.open_log` reads.

    Raises:
        DataError: nothing at the path can be read; the message says what the path looks like.
        MissingPackageError: reading it needs a package that is not installed.
    """
    return any_log.open_log(path, _open_folder)


def run_folder(path: Path) -> Path:
    """The run directory (or ``trace`` folder) whose ``events`` folder the path is; any other path unchanged."""
    above = RunDir(path.parent)
    return above.path if path == above.events and path.is_dir() and is_recorded(above) else path


def is_recorded(directory: RunDir) -> bool:
    """Whether a folder holds a run, or a recording of the verb ``trace``; it may be begun only."""
    marks = (directory.config, directory.sources, directory.command, directory.steps())
    return any(mark.exists() for mark in marks)


def _open_folder(path: Path) -> Recording:
    path = run_folder(path)
    directory = RunDir(path)
    is_run = directory.config.exists() or directory.sources.exists() or directory.steps().exists()
    if directory.events.is_dir() or is_run or directory.command.exists():
        return _recorded(directory, "trace" if directory.command.exists() and not is_run else "run")
    if not is_event_folder(path):
        _refuse_result(path)
        _refuse_runs(path)
    return any_log.open_folder(path)


def _refuse_result(path: Path) -> None:
    """Raises DataError for the result of the verb ``fit``, which holds a recipe."""
    if marked_kind(path) == "fit":
        runs = [folder for folder in _folders(path) if is_recorded(RunDir(folder))]
        more = f"its compared run is {runs[0]}; " if runs else ""
        raise DataError(
            f"{path} is a result of the verb fit, which holds a recipe",
            hint=f"{more}run the recipe with recipe={path}/",
        )


def _refuse_runs(path: Path) -> None:
    """Raises DataError for a folder that holds several run directories instead of one recording."""
    within = _folders(path)
    runs = [folder for parent in within for folder in (parent, *_folders(parent)) if is_recorded(RunDir(folder))]
    if runs:
        names = ", ".join(str(run.relative_to(path)) for run in runs[:_NAMED])
        more = f", ... ({len(runs) - _NAMED} more)" if len(runs) > _NAMED else ""
        count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
        raise DataError(
            (f"{path} is not a recording, but holds {count}"),
            hint=(f"give the path of {'one run' if len(runs) > 1 else 'the run'}: {names}{more}"),
        )


def _folders(path: Path) -> list[Path]:
    """Paths of the folders in a folder that are not hidden, by name; at most those of its first entries."""
    with os.scandir(path) as entries:
        names = [entry.path for entry in islice(entries, _ENTRIES) if not entry.name.startswith(".") and entry.is_dir()]
    return [Path(name) for name in sorted(names)]


def _recorded(directory: RunDir, kind: Kind) -> Recording:
    """Reads a run directory, or a folder of the verb ``trace``, complete or not."""
    notes: list[str] = []
    facts: dict[str, Any] = {}
    ended = True
    for name, part in (("command", directory.command), ("environment", directory.environment)):
        if part.exists():
            try:
                facts[name] = directory.read_json(part)
            except DlioError as error:
                notes.append(str(error))
    about = facts.pop("command", None)
    if isinstance(about, dict):
        ended = "runtime_s" in about  # the rest of the file is written before the program starts
        if not ended:
            notes.append("the recording stops before the end of the program")
        notes += [str(note) for note in about.get("notes", ())]
        facts |= {key: value for key, value in about.items() if key != "notes"}
    summary: Any = None
    if directory.summary.exists():
        try:
            summary = directory.read_json(directory.summary)
        except DlioError as error:
            notes.append(str(error))
    elif kind == "run":
        notes.append(_why_no_summary(directory, facts))
    recording = read_event_folder(directory.events, directory.path, kind, facts, tuple(notes))
    if isinstance(summary, dict) and isinstance(summary.get("world_size"), int):
        facts = {**recording.facts, "recipe": summary.get("recipe"), **_utilisation(summary), **_figures(summary)}
        recording = replace(recording, world_size=summary["world_size"], facts=facts)
    if not ended:
        return replace(recording, runtime_s=None)
    runtime_s = recording.facts.get("runtime_s")
    return replace(recording, runtime_s=float(runtime_s)) if isinstance(runtime_s, float | int) else recording


def _utilisation(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The fact ``utilisation``: that of the run, and what its loader and its storage allow; empty if none is known."""
    values = {name: (summary.get(name) or {}).get("mean") for name in ("au", *LIMITS)}
    known = {name: value for name, value in values.items() if value is not None}
    return {"utilisation": known} if known else {}


def _figures(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The fact ``figures``: those on checkpoints, by their paths in the summary; empty if none is known."""
    known = compared_figures(summary)
    return {"figures": known} if known else {}


def _why_no_summary(directory: RunDir, facts: dict[str, Any]) -> str:
    """A remark on a run without summary; if the run ended early, the reason is added to ``facts``."""
    state = run_state.read(directory.state)
    why = state.why_early() if state is not None else None
    if why is not None:
        facts["ended_early"] = why
        return f"the run ended early, so its events stop there and it has no summary: {why}"
    if state is not None and state.state == "running":
        return "the run is still running: it has no summary yet, and its events are those recorded until now"
    return "the run was ended or failed early: it has no summary, and its events stop early"
