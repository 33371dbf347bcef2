"""Run directory and the names of its files, which no other module knows.

``runs/<recipe>/<YYYYmmdd-HHMMSS>[-n]/`` holds the results of one run::

    config.yaml       the resolved configuration
    sources.yaml      source of each of its values
    environment.json  host, versions, mounts
    state.json        state of the run: running, done, or the reason why it ended early
    summary.json      the figures (versioned)
    steps.csv         one line per step of every rank; during the run steps.rank<r>.csv for each rank
    events/           spans of every process, appended as the run goes
    trace.json.gz     the merged trace for Perfetto
    horovod.json      Horovod's own timeline
    checkpoints/      saved checkpoints
    position.rank<r>.json  position of a saving rank at each complete checkpoint
    tensorboard/      log directory of TensorBoard
    report.html       the report, one file
    dlio_torch.json   the list of these files (:mod:`dlio_torch.ownership.marker`)

The folder of an elastic run holds ``elastic.json`` and a run directory for each set of ranks, ``turn-1/``, ``turn-2/``.
The folder of a recorded program (the verb ``trace``) has the layout of a run directory, with ``command.json`` (command
line and exit code) instead of the configuration.

A file gets its name when it is complete, so a run that was killed has complete files or none; :meth:`RunDir.missing`
lists the missing ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import replaced, writing
from dlio_torch.ownership.marker import write_marker
from dlio_torch.ownership.run_files import RUN_FILES
from dlio_torch.run_directory.results_folder import claim, folder_name, new_folder
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
    """A run directory, as a value that can be sent to other ranks.

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
        option: str = "output.dir",
    ) -> RunDir:
        """Make a new run directory with only its marker file; two runs that start at the same time get two directories.

        Args:
            root: folder below which run directories lie.
            recipe: name of the recipe, or the path of a recipe file (its stem is used).
            dir: path of the run directory instead; it may exist, but must be empty.
            now: local time in the name; the current time by default.
            kind: a run, or a recorded program (the verb ``trace``).
            checkpoints: entries of the marker's list for files in ``checkpoints/``.
            option: option that names ``dir``, for messages.

        Raises:
            PreconditionError: ``dir`` holds something, or the directory cannot be made.
        """
        directory = (
            cls(claim(Path(dir).expanduser().absolute(), option)) if dir is not None else cls._new(root, recipe, now)
        )
        with writing(directory.path):
            write_marker(
                kind,
                directory.path,
                recipe,
                [*RUN_FILES, *(f"{directory.checkpoints.name}/{name}" for name in checkpoints)],
            )
        return directory

    @classmethod
    def _new(cls, root: Path | str, recipe: str, now: datetime | None) -> RunDir:
        parent = Path(root).expanduser().absolute() / folder_name(recipe)
        try:
            return cls(new_folder(parent, now))
        except OSError as error:
            raise refused(
                f"run directory below {parent} cannot be made", error, elsewhere="set output.root or output.dir"
            ) from error

    @classmethod
    def open(cls, path: Path | str, option: str = "") -> RunDir:
        """Open an existing run directory, complete or damaged.

        Args:
            path: the directory.
            option: option that names it, for the message.

        Raises:
            DataError: there is no such directory.
        """
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            prefix = f"{option}={path}: " if option else ""
            raise DataError(
                f"{prefix}{folder} is not a run directory", hint="name a run directory, runs/<recipe>/<time>"
            )
        return cls(folder)

    @property
    def config(self) -> Path:
        """The resolved configuration (YAML)."""
        return self.path / "config.yaml"

    @property
    def sources(self) -> Path:
        """Source of each value of the configuration (YAML)."""
        return self.path / "sources.yaml"

    @property
    def environment(self) -> Path:
        """Host, versions and mounts (JSON)."""
        return self.path / "environment.json"

    @property
    def state(self) -> Path:
        """State of the run: running, done, or the reason why it ended early (JSON)."""
        return self.path / "state.json"

    @property
    def elastic(self) -> Path:
        """List of the turns of an elastic run (JSON)."""
        return self.path / "elastic.json"

    def turn(self, number: int) -> Path:
        """The run directory of a turn (from 1) in the folder of an elastic run."""
        return self.path / f"turn-{number}"

    @property
    def command(self) -> Path:
        """Command line and exit code of a recorded program (JSON)."""
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
        """Folder of the checkpoints, unless ``checkpoint.root`` is set."""
        return self.path / "checkpoints"

    @property
    def checkpoint_link(self) -> Path:
        """Names the folder of the checkpoints if it lies elsewhere (JSON)."""
        return self.path / "checkpoints.json"

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
        """Folder for ``tensorboard --logdir``."""
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        """The report (HTML)."""
        return self.path / "report.html"

    def steps(self, rank: int | None = None) -> Path:
        """File of step times: of all ranks (``steps.csv``), or of one rank."""
        return self.path / ("steps.csv" if rank is None else f"steps.rank{rank}.csv")

    def position(self, rank: int) -> Path:
        """Positions of a rank at its complete checkpoints (JSON)."""
        return self.path / f"position.rank{rank}.json"

    def missing(self) -> tuple[str, ...]:
        """Names of files of a finished run or recording that are missing or empty in this directory."""
        parts = _TRACE_PARTS if self.command.exists() else _PARTS
        return tuple(name for name in parts if not _filled(self.path / name))

    def write_text(self, path: Path, text: str) -> None:
        """Write a file of this directory atomically.

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
        """Read the value in a JSON file of a run directory.

        Raises:
            DataError: the file is missing or damaged; the message names it.
        """
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error.strerror}",
                hint="the run ended before it wrote this file; repeat the run",
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is damaged: {error}", hint="repeat the run") from error


def _filled(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:
        return False
