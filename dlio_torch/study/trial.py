"""Runs one trial and reads its figures."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dlio_torch.errors import DataError
from dlio_torch.ownership.marker import NotOwned
from dlio_torch.ownership.removal import remove
from dlio_torch.report.expect import lookup
from dlio_torch.run_directory.checkpoint_folder import outside_folders
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.model import Point, Trial
from dlio_torch.study.warm_start import WarmStart
from dlio_torch.supervision.run_process import Ended, emulator, run_process

FIGURES = (
    "train.samples_per_s",
    "train.mib_per_s",
    "train.elapsed_s",
    "au.mean",
    "au_limit_of_loader.mean",
    "au_of_storage.mean",
    *(f"step.{part}_s.{value}" for part in ("fetch", "duration") for value in ("mean", "median", "p95")),
    *(f"shares.{part}" for part in ("fetch", "copy", "compute", "allreduce", "checkpoint", "other", "between_epochs")),
    "checkpoints.duration_s.mean",
    "io.rchar_bytes",
    "io.read_bytes",
    "io.device_read_share",
    "io.cached_share_before",
    "storage.bytes_per_s",
    "storage.limit_bytes_per_s",
    "storage.share",
)
"""Figures that every trial records, by their dotted names in ``summary.json``."""
PROCESS = ("trial.wall_s", "trial.cpu_s", "trial.peak_rss_bytes")
"""Resource usage of a trial: wall seconds, CPU seconds of all processes, largest resident set of any process."""
_PROGRESS = "output.progress="


def run_trial(
    point: Point,
    directory: Path,
    *,
    repeat: int = 1,
    warm: WarmStart | None = None,
    timeout_s: float = 3600.0,
    cwd: Path | None = None,
    figures: Sequence[str] = (),
) -> Trial:
    """Run a point once in a new process (with several ranks, in processes of torchrun).

    The output of the run goes to ``<directory>.log``.  Checkpoints are removed after the run: a study measures how
    long they take, and many runs would fill the device.

    Args:
        point: its arguments, without ``output.*``.
        directory: run directory; must not exist, or be empty.
        repeat: number of the run of this point.
        warm: starts the run; None: it starts by itself.
        timeout_s: limit after which the run is ended and counts as failed.
        cwd: working directory; None: the current one.
        figures: dotted names in ``summary.json`` to record beside :data:`FIGURES`.

    Raises:
        PreconditionError: no process can be started, or the log cannot be written.
        KeyboardInterrupt: passed on after the run has ended and its half-finished directory is removed.
    """
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    arguments = [point.verb, *_without_progress(point.settings), f"output.dir={directory.absolute()}"]
    try:
        log = log_of(directory)
        ended = None if warm is None else warm.run(arguments, log, timeout_s=timeout_s, cwd=cwd)
        start: Literal["warm", "fresh"] = "warm"
        if ended is None:
            discard(directory)  # of a run whose server died
            ended = run_process(emulator(arguments, point.ranks), log, timeout_s=timeout_s, cwd=cwd)
            start = "fresh"
    except BaseException:
        discard(directory)
        raise
    run = RunDir(directory.absolute())
    summary: Mapping[str, Any] = {}
    code, error = ended.exit_code, ended.error or None
    if run.path.is_dir():
        _remove_checkpoints(run)
        try:
            summary = run.read_json(run.summary)
        except DataError as missing:
            if not code:  # only if another program removes files
                code, error = 1, str(missing)
    cache = summary.get("cache") or {}
    usage = (ended.wall_s, ended.cpu_s, None if ended.peak_rss_bytes is None else float(ended.peak_rss_bytes))
    names = (*FIGURES, *figures)
    return Trial(
        point.settings,
        point.number,
        repeat,
        point.values,
        point.ranks,
        "failed" if code else "done",
        code,
        error,
        str(directory) if run.path.is_dir() else "",
        start,
        started,
        {**{name: lookup(summary, name) for name in names}, **dict(zip(PROCESS, usage, strict=True))},
        str(cache.get("state", "")),
        tuple(cache.get("warnings", ())),
    )


def generate_data(
    settings: Sequence[str], log: Path, *, ranks: int = 1, timeout_s: float = math.inf, cwd: Path | None = None
) -> Ended:
    """Generate the data set that ``settings`` describe, in a new process, as the verb ``generate`` does."""
    command = emulator(["generate", *_without_progress(settings)], ranks)
    return run_process(command, log, timeout_s=timeout_s, cwd=cwd)


def _without_progress(settings: Sequence[str]) -> list[str]:
    """The settings with ``output.progress=false`` once, whatever they say of it: a study shows progress of its own."""
    return [*(setting for setting in settings if not setting.startswith(_PROGRESS)), f"{_PROGRESS}false"]


def log_of(directory: Path) -> Path:
    """Returns the log file of the run in ``directory``."""
    return directory.with_name(f"{directory.name}.log")


def _remove_checkpoints(run: RunDir) -> None:
    """Remove the checkpoints of a run that has ended; whatever cannot be removed stays."""
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    for folder in outside_folders(run):
        with contextlib.suppress(NotOwned, OSError):
            remove(folder)


def discard(directory: Path) -> None:
    """Remove a run directory that belongs to no trial, its checkpoints, and the log of this run."""
    _remove_checkpoints(RunDir(directory))
    shutil.rmtree(directory, ignore_errors=True)
    log_of(directory).unlink(missing_ok=True)
