"""The run directory: the only module that knows file names inside it.

``runs/<recipe>/<YYYYmmdd-HHMMSS>[-n]/`` holds everything that one run left behind::

    config.yaml       the resolved configuration
    sources.yaml      where each of its values came from
    environment.json  host, versions, mounts
    state.json        whether the run goes on, is done, or why it ended early
    summary.json      the figures (versioned)
    steps.csv         one line per step of every rank; steps.rank<r>.csv while ranks write their own
    events/           spans of every process, appended as the run goes
    trace.json.gz     the merged trace for Perfetto
    horovod.json      Horovod's own timeline
    checkpoints/      what the run saved
    position.rank<r>.json  where a saving rank was when each checkpoint was complete
    tensorboard/      what TensorBoard is pointed at
    report.html       the report, one file
    dlio_torch.json   the list of these files (:mod:`dlio_torch.ownership.marker`)

The folder of a run whose ranks came and went holds ``elastic.json`` and a run directory for each set of ranks,
``turn-1/``, ``turn-2/``.  The folder of a recorded program (the verb ``trace``) is laid out as a run directory, with
``command.json`` (what was run, how it ended) instead of the configuration.

Files get their names only when they are complete, so a run that was killed has whole files or none,
and :meth:`RunDir.missing` tells which.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.ownership.marker import write_marker
from dlio_torch.ownership.names import MARKER
from dlio_torch.ownership.run_files import RUN_FILES
from dlio_torch.storage.local.atomic_file import replaced, writing
from dlio_torch.syserrors import refused

_PARTS = (
    "config.yaml",
    "sources.yaml",
    "environment.json",
    "summary.json",
    "steps.csv",
    "events",
    "trace.json.gz",
)
_TRACE_PARTS = ("command.json", "environment.json", "summary.json", "events", "trace.json.gz")


@dataclass(frozen=True)
class RunDir:
    """One run directory; a value that can be sent to the other ranks.

    Args:
        path: the directory, absolute.
    """

    path: Path

    @classmethod
    def create(
        cls,
        root: Path | str,
        recipe: str,
        dir: Path | str | None = None,
        now: datetime | None = None,
        *,
        kind: Literal["run", "recording"] = "run",
        checkpoints: Iterable[str] = (),
    ) -> RunDir:
        """Make a new run directory with nothing but its marker; two runs that start at once get two directories.

        Args:
            root: folder below which run directories lie.
            recipe: name of the recipe, or the path of a recipe file (its stem is used).
            dir: this very directory instead; it may exist, but must be empty.
            now: local time in the name; the current time by default.
            kind: what is recorded: a run, or a program (the verb ``trace``).
            checkpoints: entries of the marker's list for files in ``checkpoints/``.

        Raises:
            PreconditionError: ``dir`` holds something, or the directory cannot be made.
        """
        made = cls(_claim(Path(dir).expanduser().absolute())) if dir is not None else cls._new(root, recipe, now)
        with writing(made.path):
            write_marker(
                kind, made.path, recipe, [*RUN_FILES, *(f"{made.checkpoints.name}/{one}" for one in checkpoints)]
            )
        return made

    @classmethod
    def _new(cls, root: Path | str, recipe: str, now: datetime | None) -> RunDir:
        stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        parent = Path(root).expanduser().absolute() / folder_name(recipe)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            number = 1
            while True:
                path = parent / (stamp if number == 1 else f"{stamp}-{number}")
                # mkdir is the one test-and-set that every file system makes atomic.
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    return cls(path)
                number += 1
        except OSError as error:
            raise refused(
                f"run directory below {parent} cannot be made", error, elsewhere="set output.root or output.dir"
            ) from error

    @classmethod
    def open(cls, path: Path | str, option: str = "") -> RunDir:
        """An existing run directory, whole or broken.

        Args:
            path: the directory.
            option: that names it, for the message.

        Raises:
            DataError: there is no such directory.
        """
        found = Path(path).expanduser().absolute()
        if not found.is_dir():
            what = f"{option}={path}: " if option else ""
            raise DataError(f"{what}{found} is not a run directory", hint="name a folder runs/<recipe>/<time>")
        return cls(found)

    @property
    def config(self) -> Path:
        """The resolved configuration (YAML)."""
        return self.path / "config.yaml"

    @property
    def sources(self) -> Path:
        """Where each value of the configuration came from (YAML)."""
        return self.path / "sources.yaml"

    @property
    def environment(self) -> Path:
        """Host, versions and mounts (JSON)."""
        return self.path / "environment.json"

    @property
    def state(self) -> Path:
        """Whether the run goes on, is done, or why it ended early (JSON)."""
        return self.path / "state.json"

    @property
    def elastic(self) -> Path:
        """Which ranks went on when, in the folder of an elastic run (JSON)."""
        return self.path / "elastic.json"

    def turn(self, number: int) -> Path:
        """The run directory of a turn (from 1) in the folder of an elastic run."""
        return self.path / f"turn-{number}"

    @property
    def command(self) -> Path:
        """What the verb ``trace`` ran and how it ended (JSON)."""
        return self.path / "command.json"

    @property
    def summary(self) -> Path:
        """The figures of the run (JSON)."""
        return self.path / "summary.json"

    @property
    def events(self) -> Path:
        """Folder of the span files of every process."""
        return self.path / "events"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def trace(self) -> Path:
        """The merged trace of all processes (gzipped JSON)."""
        return self.path / "trace.json.gz"

    @property
    def horovod(self) -> Path:
        """Horovod's timeline, as Horovod writes it (JSON, without its end where the run was killed)."""
        return self.path / "horovod.json"

    @property
    def tensorboard(self) -> Path:
        """Folder that ``tensorboard --logdir`` is given."""
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        """The report (HTML)."""
        return self.path / "report.html"

    def steps(self, rank: int | None = None) -> Path:
        """Step times: of all ranks (``steps.csv``), or the file of one rank."""
        return self.path / ("steps.csv" if rank is None else f"steps.rank{rank}.csv")

    def position(self, rank: int) -> Path:
        """Where a rank was when its checkpoints were complete (JSON)."""
        return self.path / f"position.rank{rank}.json"

    def missing(self) -> tuple[str, ...]:
        """Names of the parts that every finished run (or trace) has and this one lacks, or has empty."""
        parts = _TRACE_PARTS if self.command.exists() else _PARTS
        return tuple(name for name in parts if not _filled(self.path / name))

    def write_text(self, path: Path, text: str) -> None:
        """Write a file of this directory: afterwards it is complete, or as it was before.

        Raises:
            DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
            ValueError: ``path`` lies outside this directory.
        """
        if not path.absolute().is_relative_to(self.path):
            raise ValueError(f"{path} lies outside the run directory {self.path}")
        with replaced(path) as file:
            file.write(text.encode("utf-8"))

    def write_json(self, path: Path, value: Any) -> None:
        """Write ``value`` as JSON, as :meth:`write_text` does; NaN and infinities are refused (ValueError)."""
        self.write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def read_json(self, path: Path) -> Any:
        """The value in a JSON file of a run directory.

        Raises:
            DataError: the file is missing or damaged; the message names it.
        """
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}", hint="the run did not get that far") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is damaged: {error}", hint="repeat the run") from error


def require_claimable(path: Path, key: str, source: str, *, empty: bool = True) -> None:
    """Raise where a folder of results could not be made or written; nothing is written.

    Args:
        path: the folder.
        key: what names it, for messages.
        source: where that was set.
        empty: whether it must not hold anything.

    Raises:
        PreconditionError: a file stands there, it is not empty, it may not be written, or the device is full.
    """
    try:
        problem = _unusable(path.expanduser().absolute(), empty)
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, an unknown ~user
        problem = f"cannot be used: {error}"
    if problem:
        raise PreconditionError(f"{key}={path} ({source}): {problem}", hint="choose another folder")


def _unusable(path: Path, empty: bool) -> str:
    there = next(place for place in (path, *path.parents) if place.exists())
    if not there.is_dir():
        return "is a file" if there == path else f"cannot be made: {there} is a file"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} may not be written"
    if not (room := shutil.disk_usage(there)).free:
        return "its file system is full" if room.total else "its file system takes no files"
    return "is not empty" if empty and there == path and not is_vacant(path) else ""


def say_where(interrupt: KeyboardInterrupt, record: Path) -> None:
    """Have the line about an interrupt say where what was recorded lies."""
    path = shlex.quote(str(record))
    interrupt.args = (f"what was recorded is in {path}, to be read with: python -m dlio_torch report {path}",)


def is_vacant(folder: Path) -> bool:
    """Whether a folder holds nothing, or only what marks it as a folder of results."""
    return all(path.name == MARKER for path in folder.iterdir())


def _claim(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = not is_vacant(path)
    except OSError as error:
        raise refused(f"output.dir={path} cannot be made", error, elsewhere="choose another folder") from error
    if occupied:
        raise PreconditionError(f"output.dir={path} is not empty", hint="choose a new folder or remove this one")
    return path


def folder_name(recipe: str) -> str:
    """The folder of a recipe's runs below ``output.root``; ``recipe`` is a name, or the path of a file."""
    name = Path(recipe).stem if recipe.endswith((".yaml", ".yml")) else Path(recipe).name
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "run"


def _filled(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:
        return False
