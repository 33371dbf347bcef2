"""Writes one self-contained HTML page about a run, a recorded program or another tool's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dlio_torch.analysis.run_recording import run_folder
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.call_selection import data_only
from dlio_torch.report.html.html_page import write_page
from dlio_torch.report.html.run.view import View
from dlio_torch.run_directory.run_dir import RunDir

__all__ = ["report_run", "write_report"]


def write_report(
    recording: Recording,
    target: Path,
    *,
    summary: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    config: str | None = None,
    sources: Mapping[str, str] | None = None,
    steps: pd.DataFrame | None = None,
    command: Mapping[str, Any] | None = None,
    missing: tuple[str, ...] = (),
) -> Path:
    """Writes the page about a recording and the other files of its run.

    Args:
        recording: events, counters and notes.
        target: the file; afterwards it is complete, or as it was before.
        summary: content of ``summary.json``.
        environment: content of ``environment.json``.
        config: the resolved configuration as YAML text.
        sources: where each of its values came from, by dotted key.
        steps: records of :data:`dlio_torch.train.steps.STEP_DTYPE` with a column ``rank``.
        command: content of ``command.json``: what the verb ``trace`` ran and how it ended.
        missing: what a whole run has and this one lacks, one sentence each.

    Returns:
        ``target``.

    Raises:
        MissingPackageError: the extra ``report`` is not installed.
        PreconditionError: the file cannot be written.
    """
    view = View(recording, summary, environment, config, sources, steps, command, missing)
    return write_page(view, target)


def report_run(path: Path | str, output: Path | str | None = None) -> Path:
    """Opens the recording at ``path`` and writes the page about its spans and its calls on data files.

    Args:
        path: a run directory, whole or broken, or its ``events``; the folder of a recorded program; or a log that
            :func:`dlio_torch.analysis.run_recording.open_recording` reads.
        output: the file to write; ``report.html`` in a directory, ``<log>.report.html`` in the current
            folder for a log.

    Returns:
        The file that was written.

    Raises:
        DataError: there is nothing at ``path`` that can be read.
        MissingPackageError: the extra ``report`` is not installed.
        PreconditionError: the file cannot be written.
    """
    from dlio_torch.report.html.run.gather import gather

    folder = run_folder(Path(path).expanduser().absolute())
    view = gather(folder)
    view = replace(view, recording=data_only(view.recording))
    if output is not None:
        target = Path(output).expanduser().absolute()
    else:
        target = RunDir(folder).report if folder.is_dir() else Path.cwd() / f"{folder.name}.report.html"
    return write_page(view, target)
