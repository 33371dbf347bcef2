"""Collects the data of a page from a run directory (complete or not), a recorded program, or another tool's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.analysis import standalone_checkpoints
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.analysis.step_metrics import SCHEMA, VERSION
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.iotrace.events.event_table import EventTable, read_events
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.report.html.run.view import View
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.steps import read_steps

_LARGEST = 1 << 22  # bytes of a text that is shown whole; a configuration has a few thousand
_WHY = {
    "config.yaml": "the run ended before it wrote its configuration",
    "sources.yaml": "the run ended before it wrote the origin of its option values",
    "environment.json": "the run ended before it wrote the description of the machine",
    "summary.json": "the run ended before it wrote its summary; the figures cover only the part that was recorded",
    "steps.csv": "the run ended before it merged the step times of its ranks",
    "events": "no span was recorded (trace.spans=false, or the run ended at once)",
    "trace.json.gz": "the run ended before it wrote the timeline, which this page does not need",
}


def gather(path: Path) -> View:
    """Reads all data at ``path``; the view names missing and damaged files.

    Raises:
        DlioError: ``path`` does not exist, or is no recording at all.
    """
    if not path.is_dir():
        return View(open_recording(path))
    directory = RunDir.open(path)
    is_run = directory.config.exists() or directory.summary.exists() or directory.environment.exists()
    missing: list[str] = []
    try:
        recording = open_recording(path)
    except DlioError as error:
        if not is_run:
            raise
        missing.append(f"the recording cannot be read: {error}")
        recording = Recording(path, "run", EventTable(_no_events(path), (), ()), frozenset())
    if recording.kind != "run":
        return View(
            recording,
            environment=_json(directory, directory.environment, missing),
            command=_json(directory, directory.command, missing),
            missing=tuple(missing),
        )
    summary = _summary(directory, missing)
    steps = _steps(directory, summary, missing)
    standalone = _standalone(directory)
    has_steps = steps is not None or standalone is not None
    lacking = [name for name in directory.missing() if name != "steps.csv" or not has_steps]
    missing += [f"{name} is missing: {_WHY.get(name, 'the run did not write it')}" for name in lacking]
    environment, config = _json(directory, directory.environment, missing), _text(directory.config, missing)
    sources = _sources(directory, missing)
    # What the recording says of files that are read here again would stand there twice.
    notes = tuple(note for note in recording.notes if not any(line.endswith(note) for line in missing))
    return View(
        replace(recording, notes=notes),
        summary=summary,
        environment=environment,
        config=config,
        sources=sources,
        steps=steps,
        missing=tuple(missing),
        standalone=standalone,
    )


def _no_events(path: Path) -> pd.DataFrame:
    frame: pd.DataFrame = read_events(path / "no such folder").frame
    return frame


def _json(directory: RunDir, path: Path, missing: list[str]) -> Mapping[str, Any] | None:
    if not path.exists() or not path.stat().st_size:
        return None
    try:
        value = directory.read_json(path)
    except DlioError as error:
        missing.append(f"{path.name} is left out: {error}")
        return None
    if not isinstance(value, Mapping):
        missing.append(f"{path.name} is left out: it contains no table of values")
        return None
    return value


def _summary(directory: RunDir, missing: list[str]) -> Mapping[str, Any] | None:
    """Reads the run's summary; None if its version cannot be shown by this package."""
    value = _json(directory, directory.summary, missing)
    if _standalone(directory) is not None:
        missing.append(
            "this run saved checkpoints and read them back without training (verb checkpoint), so it has no steps and "
            "no figures of steps"
        )
        return None
    if value is not None and (value.get("schema"), value.get("version")) != (SCHEMA, VERSION):
        missing.append(
            f"summary.json is left out: it has the format {value.get('schema')} version {value.get('version')}, but "
            f"this page needs {SCHEMA} version {VERSION}"
        )
        return None
    return value


def _standalone(directory: RunDir) -> Mapping[str, Any] | None:
    """Reads the summary of a run of the verb ``checkpoint``; ``None`` for any other."""
    value = _json(directory, directory.summary, [])
    kind = (standalone_checkpoints.SCHEMA, standalone_checkpoints.VERSION)
    return value if value is not None and (value.get("schema"), value.get("version")) == kind else None


def _text(path: Path, missing: list[str]) -> str | None:
    try:
        if not path.is_file():
            if path.exists():
                missing.append(f"{path.name} is left out: it is not a regular file")
            return None
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            missing.append(f"{path.name} is left out: it is larger than {_LARGEST} bytes")
            return None
        return content.decode("utf-8", errors="replace") or None
    except FileNotFoundError:
        return None
    except OSError as error:
        missing.append(f"{path.name} is left out: {error.strerror}")
        return None


def _sources(directory: RunDir, missing: list[str]) -> Mapping[str, str] | None:
    text = _text(directory.sources, missing)
    if text is None:
        return None
    try:
        # As a recipe is read: bounded, and nothing is made of tags.
        tree = parse_document(text, "sources.yaml").tree
    except ConfigError as error:
        missing.append(f"sources.yaml is left out: it is damaged: {error.message}")
        return None
    return {key: str(item) for key, item in tree.items()}


def _steps(directory: RunDir, summary: Mapping[str, Any] | None, missing: list[str]) -> pd.DataFrame | None:
    """Reads the step records of all ranks, from the merged file or from the files of single ranks."""
    paths = [directory.steps()]
    if not directory.steps().exists():
        names = {path.name.removesuffix(".journal") for path in directory.path.glob("steps.rank*.csv*")}
        paths = [directory.path / name for name in sorted(names)]
    frames = []
    for path in paths:
        try:
            by_rank = read_steps(path)
        except DlioError as error:
            missing.append(f"{path.name} is left out: {error.message}")
            continue
        frames += [_step_frame(rank, records) for rank, records in sorted(by_rank.items())]
    if paths and not directory.steps().exists():
        missing.append("steps.csv is missing: the figures use the steps that each rank had written when the run ended")
    return pd.concat(frames, ignore_index=True) if frames else None


def _step_frame(rank: int, records: Any) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame({name: np.asarray(records[name]) for name in records.dtype.names})
    frame.insert(0, "rank", rank)
    return frame
