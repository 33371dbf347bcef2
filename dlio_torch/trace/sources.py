"""Opens whatever tells about I/O: a run, a recorded program, or a log of another tool, as one kind of value.

What a path is, is found out from its content (:mod:`dlio_torch.trace.importers.detect`)::

    a folder with events/        a run, or a program recorded by the verb ``trace``
    a folder of *.spans/*.posix  the events alone
    a Darshan log                :mod:`dlio_torch.trace.importers.darshan`
    DFTracer's .pfw[.gz]         :mod:`dlio_torch.trace.importers.dftracer`; a folder of them is one program
    strace's text, or strace.*   :mod:`dlio_torch.trace.importers.strace`; the files of ``-ff`` are one program
    a tar archive                of one of these three
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from dlio_torch import runstate
from dlio_torch.errors import DataError, DlioError
from dlio_torch.rundir import RunDir
from dlio_torch.storage.local.locked_folder import temporary_folder
from dlio_torch.trace import calls
from dlio_torch.trace.events import read_events
from dlio_torch.trace.importers.darshan import read_darshan
from dlio_torch.trace.importers.detect import ACCEPTED, Content, content, describe
from dlio_torch.trace.importers.dftracer import read_dftracer
from dlio_torch.trace.importers.strace import read_strace
from dlio_torch.trace.posix import tree
from dlio_torch.trace.posix.patterns import selector
from dlio_torch.trace.recording import Kind, Recording

_OURS = ("*.spans", "*.posix")
_STRACE = "strace.*"
# So many files of other kinds, and a folder is no folder of logs (but perhaps one of a million samples).
_STRANGERS = 200
_ENTRIES = 1000  # of a folder that are looked at for runs
_NAMED = 5
# Of an archive: more is no log, or a bomb.
_UNPACKED_BYTES = 64 << 30
_MEMBERS = 1_000_000


def open_recording(path: Path | str) -> Recording:
    """The recording at a path.

    Args:
        path: a file or a folder.

    Raises:
        DataError: there is nothing, or nothing that can be read; the message says what it looks like.
        MissingPackageError: reading it needs a package that is not installed.
    """
    found = Path(path).expanduser().absolute()
    try:
        if found.is_dir():
            return _folder(found)
        if not found.exists():
            raise DataError(f"{found} does not exist", hint="check the path")
        if not found.is_file():
            raise DataError(f"{found} is no regular file", hint=f"accepted: {ACCEPTED}")
        kind = content(found)
        if kind == "tar":
            return _archive(found)
        if kind is None:
            raise _refused(found, describe(found))
        return _log(kind, found, [found])
    except OSError as error:
        raise DataError(f"{found} cannot be read: {error.strerror or error}") from error


def _log(kind: Content, path: Path, files: list[Path]) -> Recording:
    if kind == "darshan":
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3]) + (", ..." if len(files) > 3 else "")
            raise DataError(f"{path} holds {len(files)} Darshan logs ({names})", hint="name one of them")
        return replace(read_darshan(files[0]), path=path)
    return read_dftracer(path, files) if kind == "dftracer" else read_strace(path, files)


def run_folder(path: Path) -> Path:
    """The run (or the folder of the verb ``trace``) whose ``events`` the path is; any other path as it is."""
    above = RunDir(path.parent)
    return above.path if path == above.events and path.is_dir() and _is_recorded(above) else path


def _is_recorded(directory: RunDir) -> bool:
    marks = (directory.config, directory.sources, directory.command, directory.steps())
    return any(mark.exists() for mark in marks)


def _folder(path: Path) -> Recording:
    path = run_folder(path)
    directory = RunDir(path)
    is_run = directory.config.exists() or directory.sources.exists() or directory.steps().exists()
    if directory.events.is_dir() or is_run or directory.command.exists():
        return _recorded(directory, "trace" if directory.command.exists() and not is_run else "run")
    if _has(path, *_OURS, tree.FILE):
        return _events(path, path, "run" if _has(path, "*.spans") else "trace", {}, ())
    _refuse_runs(path)
    return _logs(path)


def _refuse_runs(path: Path) -> None:
    """Raise DataError where a folder holds runs, in it or, as ``runs/``, in its folders."""
    within = _folders(path)
    runs = [folder for one in within for folder in (one, *_folders(one)) if _is_recorded(RunDir(folder))]
    if runs:
        names = ", ".join(str(run.relative_to(path)) for run in runs[:_NAMED])
        more = f", ... ({len(runs) - _NAMED} more)" if len(runs) > _NAMED else ""
        count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
        raise DataError(f"{path} holds {count}", hint=f"name {'one of them' if len(runs) > 1 else 'it'}: {names}{more}")


def _folders(path: Path) -> list[Path]:
    """Folders in a folder that are not hidden, by name; not all of a very large one."""
    with os.scandir(path) as entries:
        found = [entry.path for entry in islice(entries, _ENTRIES) if not entry.name.startswith(".") and entry.is_dir()]
    return [Path(name) for name in sorted(found)]


def _recorded(directory: RunDir, kind: Kind) -> Recording:
    """A run directory, or a folder of the verb ``trace``, whole or broken."""
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
            notes.append("the recording was ended before the program did")
        notes += [str(note) for note in about.get("notes", ())]
        facts |= {key: value for key, value in about.items() if key != "notes"}
    summary: Any = None
    if directory.summary.exists():
        try:
            summary = directory.read_json(directory.summary)
        except DlioError as error:
            notes.append(str(error))
    elif kind == "run":
        state = runstate.read(directory.state)
        why = state.why_early() if state is not None else None
        if why is not None:
            facts["ended_early"] = why
            notes.append(f"the run ended early, so its events do, and it has no summary: {why}")
        elif state is not None and state.state == "running":
            notes.append("the run goes on: it has no summary yet, and its events are those so far")
        else:
            notes.append("the run was ended or failed before it was done: it has no summary, and its events end early")
    straced = sorted(directory.events.glob(_STRACE))
    if straced and not _has(directory.events, *_OURS):
        recording = read_strace(directory.path, straced)
        # Which calls were traced is known here.
        everything = frozenset(calls.CLASSES)
        facts = {**recording.facts, **facts}
        recording = _selected(replace(recording, notes=(*notes, *recording.notes), facts=facts, sees=everything))
    else:
        recording = _events(directory.path, directory.events, kind, facts, tuple(notes))
    if isinstance(summary, dict) and isinstance(summary.get("world_size"), int):
        facts["recipe"] = summary.get("recipe")
        recording = replace(recording, world_size=summary["world_size"], facts=facts)
    if not ended:
        return replace(recording, runtime_s=None)
    runtime_s = facts.get("runtime_s")
    return replace(recording, runtime_s=float(runtime_s)) if isinstance(runtime_s, float | int) else recording


def _selected(recording: Recording) -> Recording:
    """Of a trace by strace, which sees all files, those that were to be recorded."""
    include, exclude = (recording.facts.get(name) for name in ("include", "exclude"))
    if not isinstance(include, list) or not isinstance(exclude, list):
        return recording
    is_wanted = selector([str(one) for one in include], [str(one) for one in exclude])
    frame = recording.events.frame
    of_file = np.array([is_wanted(str(name)) for name in frame["file"].cat.categories] + [False])
    kept = frame[of_file[frame["file"].cat.codes.to_numpy()]].reset_index(drop=True)
    kept["file"] = kept["file"].cat.remove_unused_categories()
    left_out = len(frame) - len(kept)
    notes = (f"{left_out} calls on files that were not to be recorded are left out",) if left_out else ()
    return replace(recording, events=replace(recording.events, frame=kept), notes=(*recording.notes, *notes))


def _events(path: Path, folder: Path, kind: Kind, facts: dict[str, Any], notes: tuple[str, ...]) -> Recording:
    """Our own event files."""
    events = read_events(folder)
    frame = events.frame
    more = [f"{part.path.name}: {part.reason}" for part in events.skipped]
    if not len(frame):
        more.append("no event was recorded")
    return Recording(
        path=path,
        kind=kind,
        events=events,
        # One account for each process whose calls were recorded, even if it made none.
        sees=frozenset(calls.CLASSES) if events.accounts else frozenset(),
        world_size=len({process.rank for process in events.processes}) or None,
        runtime_s=int(frame["end_ns"].max() - frame["start_ns"].min()) / 1e9 if len(frame) else None,
        notes=(*notes, *more),
        facts=facts,
    )


def _logs(path: Path) -> Recording:
    """A folder of logs of one tool."""
    by_kind: dict[Content, list[Path]] = {}
    strange: list[Path] = []
    for file in _files(path):
        kind = content(file)
        if kind is None or kind == "tar":
            strange.append(file)
            if len(strange) >= _STRANGERS and not by_kind:
                break
        else:
            by_kind.setdefault(kind, []).append(file)
    if not by_kind:
        what = f"a folder in which {strange[0].name} is {describe(strange[0])}" if strange else "an empty folder"
        raise _refused(path, what)
    if len(by_kind) > 1:
        found = " and ".join(f"{kind} ({files[0].name})" for kind, files in by_kind.items())
        raise DataError(f"{path} holds logs of several tools: {found}", hint="name one of them")
    ((kind, files),) = by_kind.items()
    recording = _log(kind, path, files)
    passed_over = [f"{file.name} is passed over: it is no {kind} log" for file in strange[:3]]
    if len(strange) > 3:
        passed_over.append(f"{len(strange) - 3} more files are passed over")
    return replace(recording, notes=(*recording.notes, *passed_over))


def _files(path: Path) -> Iterator[Path]:
    """All regular files in a folder that are not hidden, in the order of their names."""
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        files = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def _archive(path: Path) -> Recording:
    """Logs in a tar archive, unpacked next to nothing else: names in it cannot lead anywhere."""
    with temporary_folder() as place:
        folder = place / path.name
        folder.mkdir()
        room = min(_UNPACKED_BYTES, shutil.disk_usage(folder).free // 2)
        try:
            with tarfile.open(path) as archive:
                for number, member in enumerate(archive):
                    room -= max(0, member.size) if member.isreg() else 0
                    if room < 0 or number >= _MEMBERS:
                        raise DataError(
                            f"{path} holds more than {_UNPACKED_BYTES >> 30} GiB, {_MEMBERS} files, or half of what is "
                            f"free in {place}",
                            hint="unpack it yourself and name what it holds",
                        )
                    parts = [part for part in PurePosixPath(member.name).parts if part not in ("/", "..", ".")]
                    source = archive.extractfile(member) if member.isreg() and parts else None
                    if source is None:
                        continue
                    target = folder.joinpath(*parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with source, open(target, "wb") as out:
                        shutil.copyfileobj(source, out)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged archive: {error}", hint="copy it again") from error
        inner = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        try:
            # An archive of one folder is that folder.
            recording = _folder(inner[0] if len(inner) == 1 and inner[0].is_dir() else folder)
        except DlioError as error:
            raise type(error)(error.message.replace(str(folder), str(path)), hint=error.hint) from error
    return replace(recording, path=path)


def _refused(path: Path, what: str) -> DataError:
    return DataError(f"{path} is no recording: it looks like {what}", hint=f"accepted: {ACCEPTED}")


def _has(folder: Path, *patterns: str) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)
