"""Opens the log of any supported tool, which it recognises by the content of the file.

::

    a folder of *.spans/*.posix  :mod:`dlio_torch.iotrace.importers.event_folder`: this package's recorder
    a Darshan log                :mod:`dlio_torch.iotrace.importers.darshan`
    DFTracer's .pfw[.gz]         :mod:`dlio_torch.iotrace.importers.dftracer`; a folder of them is one program
    strace's text, or strace.*   :mod:`dlio_torch.iotrace.importers.strace`; the files of ``-ff`` are one program
    a tar archive                of any of these
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.importers.darshan import read_darshan
from dlio_torch.iotrace.importers.detect import ACCEPTED, Content, content, describe
from dlio_torch.iotrace.importers.dftracer import read_dftracer
from dlio_torch.iotrace.importers.event_folder import is_event_folder, read_event_folder
from dlio_torch.iotrace.importers.log_archive import unpacked
from dlio_torch.iotrace.importers.strace import read_strace

# A folder with so many other files and no log among them is no folder of logs; it may be one of a million samples.
_OTHER_FILES = 200


def open_folder(path: Path) -> Recording:
    """Reads an events folder, or a folder of logs of one tool.

    Raises:
        DataError: the folder holds no logs, or logs of several tools.
    """
    return read_event_folder(path) if is_event_folder(path) else _folder_of_logs(path)


def open_log(path: Path | str, open_folder: Callable[[Path], Recording] = open_folder) -> Recording:
    """Reads the recording at a path.

    Args:
        path: a file or a folder.
        open_folder: reads a folder; also called with the folder of an unpacked archive.

    Raises:
        DataError: nothing at the path can be read; the message says what the path looks like.
        MissingPackageError: reading it needs a package that is not installed.
    """
    source = Path(path).expanduser().absolute()
    try:
        if source.is_dir():
            return open_folder(source)
        if not source.exists():
            raise DataError(f"{source} does not exist", hint="check the path")
        if not source.is_file():
            raise DataError(f"{source} is not a regular file", hint=f"give the path of {ACCEPTED}")
        kind = content(source)
        if kind == "tar":
            with unpacked(source) as folder:
                return replace(open_folder(folder), path=source)
        if kind is None:
            raise _refused(source, describe(source))
        return _logs(kind, source, [source])
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}") from error


def _logs(kind: Content, path: Path, files: list[Path]) -> Recording:
    """Reads the logs of one tool."""
    if kind == "darshan":
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:3]) + (", ..." if len(files) > 3 else "")
            raise DataError(
                (f"{path} contains {len(files)} Darshan logs ({names}), but only one log can be read"),
                hint="give the path of one log",
            )
        return replace(read_darshan(files[0]), path=path)
    return read_dftracer(path, files) if kind == "dftracer" else read_strace(path, files)


def _folder_of_logs(path: Path) -> Recording:
    by_kind: dict[Content, list[Path]] = {}
    others: list[Path] = []
    for file in _files(path):
        kind = content(file)
        if kind is None or kind == "tar":
            others.append(file)
            if len(others) >= _OTHER_FILES and not by_kind:
                break
        else:
            by_kind.setdefault(kind, []).append(file)
    if not by_kind:
        looks = f"a folder in which {others[0].name} is {describe(others[0])}" if others else "an empty folder"
        raise _refused(path, looks)
    if len(by_kind) > 1:
        tools = " and ".join(f"{kind} ({files[0].name})" for kind, files in by_kind.items())
        raise DataError(
            (f"{path} contains logs of several tools: {tools}; only the logs of one tool can be read"),
            hint="give the path of the log of one tool",
        )
    ((kind, files),) = by_kind.items()
    recording = _logs(kind, path, files)
    passed_over = [f"{file.name} was ignored: it is not a {kind} log" for file in others[:3]]
    if len(others) > 3:
        passed_over.append(f"{len(others) - 3} more files were ignored")
    return replace(recording, notes=(*recording.notes, *passed_over))


def _files(path: Path) -> Iterator[Path]:
    """All regular files in a folder that are not hidden, sorted by name."""
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        files = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def _refused(path: Path, looks: str) -> DataError:
    return DataError(f"{path} is not a recording: it looks like {looks}", hint=f"give the path of {ACCEPTED}")
