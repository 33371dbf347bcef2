"""Directory of a study, and the names of its files, which no other module knows.

``<output.root>/sweeps/<name>/<time>/`` holds::

    study.yaml        what is asked, from where, and a digest of each point's configuration
    definition.yaml   the study file as it was, where the study came from one
    trials.jsonl      one line per finished or failed trial, appended
    trials/<point>-<repeat>/   run directories; beside each its .log, what it printed
    data/<point>.log  what generating data sets printed; data.txt: data sets that this study made
    table.csv, table.md, table.parquet    one row per point
    trials.csv, trials.parquet            one row per trial
    report.html       the report, one file
    headspace.json, tune.json   results of these two verbs for programs
    dlio_torch.json   the list of these files, for ``clean`` (see :mod:`dlio_torch.ownership.marker`)

A line of ``trials.jsonl`` is written by one call and flushed to the device.  A last line that was cut, because the
machine went down, is left out when reading and removed before the next one is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.files.atomic_file import replace_text, writing
from dlio_torch.ownership.marker import write_marker
from dlio_torch.ownership.names import numbers
from dlio_torch.run_directory.results_folder import is_vacant, new_folder
from dlio_torch.study.model import Study, Trial
from dlio_torch.study.study_yaml import read, to_yaml
from dlio_torch.study.trial import discard
from dlio_torch.study.warm_start import WarmStart

STUDY = "study.yaml"
TRIALS = "trials.jsonl"
_TRIAL = f"trials/{numbers(digits=3)}-{numbers()}"
_FILES = (
    *(STUDY, TRIALS, "definition.yaml", "data.txt", ".lock", "report.html"),
    *(f"{name}.{end}" for name in ("table", "trials") for end in ("csv", "md", "parquet")),
    *("headspace.json", "tune.json", f"data/{numbers(digits=3)}.log"),
    *(f"{name}{end}" for name in (_TRIAL, f"{_TRIAL}.{numbers()}") for end in ("/", ".log")),
)


def is_study(path: Path) -> bool:
    """Whether a folder contains a study, begun or finished."""
    try:
        return (path.expanduser() / STUDY).is_file()
    except (OSError, ValueError, RuntimeError):  # no path at all
        return False


class Store:
    """Directory of a study; one process at a time may write to it.

    Use it as a context: ``with Store.open(path) as store``.

    Attributes:
        path: the directory, absolute.
        study: what is asked.
        cwd: folder in which its runs are started.
        digests: number of a point -> digest of its configuration; empty for a search.
        warm: starts its trials.
    """

    def __init__(self, path: Path, study: Study, cwd: Path, digests: Mapping[int, str], lock: IO[str] | None) -> None:
        self.path = path
        self.study = study
        self.cwd = cwd
        self.digests, self.warm = dict(digests), WarmStart()
        self._lock = lock

    @classmethod
    def create(
        cls, path: Path | str, study: Study, *, cwd: Path | None = None, digests: Mapping[int, str] | None = None
    ) -> Store:
        """Begin a study in a new or empty directory.

        Raises:
            PreconditionError: it holds something, cannot be made, or another process is about to use it.
        """
        place = Path(path).expanduser().absolute()
        try:
            place.mkdir(parents=True, exist_ok=True)
            occupied = not is_vacant(place)
        except OSError as error:
            raise PreconditionError(
                f"{place} cannot be made: {error.strerror}", hint="choose another folder with output="
            ) from None
        if occupied:
            raise PreconditionError(
                f"{place} is not empty", hint="choose a new folder with output=, or continue a study with --resume"
            )
        store = cls(place, study, (cwd or Path.cwd()).absolute(), digests or {}, _locked(place))
        try:
            with writing(place):
                write_marker("study", place, None, _FILES)
            if study.definition:
                replace_text(store.definition, study.definition)
            store.save()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: Path | str, *, write: bool = True) -> Store:
        """Open the directory of a study that was begun before.

        Args:
            path: its directory.
            write: whether trials are going to be added.

        Raises:
            DataError: it is none, or its ``study.yaml`` is damaged.
            PreconditionError: another process is running it.
        """
        place = Path(path).expanduser().absolute()
        if not (place / STUDY).is_file():
            raise DataError(
                f"{place} is not the folder of a study: the file {STUDY} is missing",
                hint="name the folder of a study, sweeps/<name>/<time>",
            )
        with contextlib.ExitStack() as held:
            lock = _locked(place) if write else None
            if lock is not None:
                held.enter_context(lock)
            study, cwd, digests = read(place / STUDY)
            with contextlib.suppress(OSError):
                study = replace(study, definition=(place / "definition.yaml").read_text(encoding="utf-8"))
            held.pop_all()  # from here on the store holds the lock
        return cls(place, study, cwd, digests, lock)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server of warm trials, and release the lock on the directory."""
        self.warm.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- the study -------------------------------------------------------------------------------

    @property
    def definition(self) -> Path:
        """Copy of the study file from the begin of the study."""
        return self.path / "definition.yaml"

    @property
    def report(self) -> Path:
        """The page of the study (HTML)."""
        return self.path / "report.html"

    def save(self, study: Study | None = None) -> None:
        """Write ``study.yaml``; with ``study``, repeats, failures and timeout are replaced."""
        self.study = study or self.study
        replace_text(self.path / STUDY, to_yaml(self.study, self.cwd, self.digests))

    def text(self) -> str:
        """The text of ``study.yaml``."""
        return (self.path / STUDY).read_text(encoding="utf-8")

    # --- trials ----------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """All trials in the order of time.

        Raises:
            DataError: a line before the last is damaged; names it.
        """
        return [trial for trial, _ in self._read()]

    def append(self, trial: Trial) -> Trial:
        """Record a trial durably; a directory inside the study's directory is recorded as a relative path.

        Raises:
            PreconditionError: the file cannot be written.
        """
        if trial.directory:
            place = Path(trial.directory).absolute()
            inside = place.is_relative_to(self.path)
            trial = replace(trial, directory=str(place.relative_to(self.path) if inside else place))
        line = json.dumps(trial.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
        whole = max((end for _, end in self._read()), default=0)
        try:
            with self._trials.open("ab") as file:
                if file.tell() > whole:
                    file.truncate(whole)  # a line that was cut
                file.write(line.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise PreconditionError(
                f"{self._trials} cannot be written: {error.strerror}",
                hint="free space on the file system, then continue the study with --resume",
            ) from error
        return trial

    def fresh_directory(self, point: int | str, repeat: int) -> Path:
        """Returns a path for the run directory of a trial; removes an unfinished directory, keeps a failed one."""
        taken = {trial.directory for trial in self.trials()}
        names = (f"trials/{point:0>3}-{repeat}" + (f".{n}" if n > 1 else "") for n in itertools.count(1))
        place = self.path / next(name for name in names if name not in taken)
        discard(place)
        return place

    def directory(self, trial: Trial) -> Path | None:
        """The run directory of a trial; ``None`` if it does not exist."""
        return self.path / trial.directory if trial.directory else None

    @property
    def _trials(self) -> Path:
        return self.path / TRIALS

    def _read(self) -> Iterator[tuple[Trial, int]]:
        """Reads each trial, and the offset at which its line ends."""
        try:
            content = self._trials.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(
                f"{self._trials} cannot be read: {error.strerror}", hint="check the permissions of the file"
            ) from None
        end = 0
        lines = content.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return  # cut; even where it can be read, a number in it may lack digits
            end += len(line)
            try:
                yield Trial.from_json(json.loads(line)), end
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{self._trials}:{number} is damaged: {error}", hint="remove this line from the file"
                ) from None

    # --- data ------------------------------------------------------------------------------------

    def data_log(self, point: int) -> Path:
        """Log of the generation of a point's data."""
        return self.path / "data" / f"{point:03}.log"

    def note_data(self, folder: Path) -> None:
        """Record that this study writes the data set in ``folder``."""
        with (self.path / "data.txt").open("a", encoding="utf-8") as file:
            file.write(f"{folder.absolute()}\n")

    def written_data(self) -> set[Path]:
        """Folders of the data sets that this study wrote."""
        try:
            return {Path(line) for line in (self.path / "data.txt").read_text(encoding="utf-8").splitlines()}
        except OSError:
            return set()


def new_directory(root: Path | str, name: str) -> Path:
    """Make a new folder ``<root>/sweeps/<name>/<time>`` that no other process uses."""
    parent = Path(root).expanduser().absolute() / "sweeps" / name
    try:
        return new_folder(parent)
    except OSError as error:
        raise PreconditionError(
            f"a folder below {parent} cannot be made: {error.strerror}", hint="set output=DIR or output.root"
        ) from error


def _locked(place: Path) -> IO[str] | None:
    """Lock the directory; ``None`` if the file system has no locks."""
    try:
        file = (place / ".lock").open("w", encoding="ascii")
    except OSError as error:
        raise PreconditionError(
            f"{place} cannot be written: {error.strerror}", hint="choose another folder with output="
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise PreconditionError(
            f"another process is already running the study in {place}", hint="wait until that process has ended"
        ) from None
    except OSError:
        file.close()
        return None
    return file
