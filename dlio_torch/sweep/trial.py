"""One trial: a run of one point, its figures, and its line in ``trials.jsonl``."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from dlio_torch.errors import DataError
from dlio_torch.report.expect import lookup
from dlio_torch.rundir import RunDir
from dlio_torch.sweep.process import Ended, emulator, run_process

FIGURES = (
    "train.samples_per_s",
    "train.mib_per_s",
    "train.elapsed_s",
    "au.mean",
    *(f"step.{part}_s.{what}" for part in ("fetch", "duration") for what in ("mean", "median", "p95")),
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
"""Dotted names in ``summary.json`` of what every trial records."""
PROCESS = ("trial.wall_s", "trial.cpu_s", "trial.peak_rss_bytes")
"""What is counted of a trial's processes: wall and CPU seconds of all, largest resident set of any one."""


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        settings: its ``key=value`` arguments.
        point: number of its point.
        repeat: which repeat of it, from 1.
        values: of the axes.
        ranks: its processes.
        status: ``failed`` where the exit code is not 0.
        exit_code: 124 where it took too long, 128 + n where signal n killed it.
        error: one line that says why it failed.
        directory: of the run, relative to the study's where it lies in it; ``""``: there is none.
        started: UTC, ISO 8601.
        figures: by dotted name (:data:`FIGURES`, :data:`PROCESS`); ``None``: not measured.
        cache: state of the page cache that was asked for; ``""``: none.
        warnings: what makes the figures doubtful.
    """

    settings: tuple[str, ...]
    point: int = 0
    repeat: int = 1
    values: tuple[tuple[str, str], ...] = ()
    ranks: int = 1
    status: Literal["done", "failed"] = "done"
    exit_code: int = 0
    error: str | None = None
    directory: str = ""
    started: str = ""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    cache: str = ""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "values": dict(self.values)}

    @classmethod
    def from_json(cls, found: Any) -> Trial:
        """The trial of :meth:`to_json`.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(
                **{
                    **found,
                    "settings": tuple(found["settings"]),
                    "values": tuple(found["values"].items()),
                    "warnings": tuple(found.get("warnings", ())),
                    "point": int(found["point"]),
                    "repeat": int(found["repeat"]),
                    "figures": dict(found["figures"]),
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no trial: {error}") from None


def run_trial(
    settings: Sequence[str],
    directory: Path,
    *,
    ranks: int = 1,
    timeout_s: float = 3600.0,
    cwd: Path | None = None,
    figures: Sequence[str] = (),
    point: int = 0,
    repeat: int = 1,
    values: Sequence[tuple[str, str]] = (),
) -> Trial:
    """Run the emulator once, in a process of its own (of torchrun where there are several ranks).

    What it prints goes to ``<directory>.log``.  Checkpoints are removed when it has ended: a study measures how
    long they take, and many runs would fill the device.

    Args:
        settings: ``key=value`` arguments, without ``output.*``.
        directory: its run directory; must not exist, or be empty.
        ranks: processes.
        timeout_s: after it the run is ended and counts as failed.
        cwd: its folder; None: the current one.
        figures: dotted names in ``summary.json`` to be recorded beside :data:`FIGURES`.
        point: number of its point.
        repeat: which repeat of it.
        values: of the axes.

    Raises:
        PreconditionError: no process can be started, or the log cannot be written.
        KeyboardInterrupt: passed on when the run has ended and its half-finished directory is removed.
    """
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    arguments = ["run", *settings, f"output.dir={directory.absolute()}", "output.progress=false"]
    try:
        ended = run_process(emulator(arguments, ranks), log_of(directory), timeout_s=timeout_s, cwd=cwd)
    except BaseException:
        discard(directory)
        raise
    return _trial(
        ended,
        directory,
        names=(*FIGURES, *figures),
        settings=tuple(settings),
        point=point,
        repeat=repeat,
        values=tuple(values),
        ranks=ranks,
        started=started,
    )


def generate_data(
    settings: Sequence[str], log: Path, *, ranks: int = 1, timeout_s: float = math.inf, cwd: Path | None = None
) -> Ended:
    """Write the data set that ``settings`` describe, as the verb ``generate`` does, in a process of its own."""
    command = emulator(["generate", *settings, "output.progress=false"], ranks)
    return run_process(command, log, timeout_s=timeout_s, cwd=cwd)


def log_of(directory: Path) -> Path:
    """Where the output of the run in ``directory`` goes."""
    return directory.with_name(f"{directory.name}.log")


def discard(directory: Path) -> None:
    """Remove a run directory that no trial stands for, and its log."""
    shutil.rmtree(directory, ignore_errors=True)
    log_of(directory).unlink(missing_ok=True)


def _trial(ended: Ended, directory: Path, *, names: Sequence[str], **about: Any) -> Trial:
    run = RunDir(directory.absolute())
    summary: Mapping[str, Any] = {}
    error = ended.error or None
    code = ended.exit_code
    if run.path.is_dir():
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        try:
            summary = run.read_json(run.summary)
        except DataError as missing:
            if not code:  # cannot happen unless somebody else removes files
                code, error = 1, str(missing)
    used = (ended.wall_s, ended.cpu_s, float(ended.peak_rss_bytes))
    cache = summary.get("cache") or {}
    return Trial(
        **about,
        status="failed" if code else "done",
        exit_code=code,
        error=error,
        directory=str(directory) if run.path.is_dir() else "",
        figures={**{name: lookup(summary, name) for name in names}, **dict(zip(PROCESS, used, strict=True))},
        cache=str(cache.get("state", "")),
        warnings=tuple(cache.get("warnings", ())),
    )
