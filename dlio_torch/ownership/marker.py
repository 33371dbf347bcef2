"""Marker of a folder: a JSON file that names the tool, the kind of the folder and its files.

``dlio_torch.json`` lies in the folder.  Under ``made_by`` it holds::

    marker   the identifier of this tool's markers
    kind     data, run, recording, study, node, copies or checkpoints
    folder   name of the folder; the marker is not valid in a copy or in a renamed folder
    recipe   recipe that it belongs to; null: to no single one
    files    the list, see :mod:`dlio_torch.ownership.names`

It is written before the files, so that the list covers the files of a killed process.  Its text depends on the list
alone: equal data sets have equal markers.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlio_torch.ownership.names import MARKER, FileNames

Kind = Literal["data", "run", "recording", "study", "node", "fit", "copies", "checkpoints"]
KEY = "made_by"
_IDENTIFIER = "30665696-5034-4830-ac7d-d022e1beb5d5"
_MOST_BYTES = 1 << 30  # of a marker; copies of a million files take a tenth of it


class NotOwned(Exception):
    """Error for a folder that cannot be proven to be created by this tool; the message gives the reason."""


class Unlisted(NotOwned):
    """Error for a folder without a list of its files, such as a folder of an earlier version.

    Attributes:
        recipe: recipe that its file names; ``None``: none.
    """

    def __init__(self, text: str, recipe: object = None) -> None:
        super().__init__(text)
        self.recipe = recipe


@dataclass(frozen=True)
class Marker:
    """Content of a marker.

    Attributes:
        kind: kind of the folder.
        recipe: recipe that it belongs to; ``None``: to no single one.
        names: names of its files.
    """

    kind: str
    recipe: str | None
    names: FileNames


def made_by(kind: Kind, folder: Path, recipe: str | None, files: Iterable[str]) -> dict[str, Any]:
    """The value of ``made_by``, as described at the top of this module."""
    return {
        "marker": _IDENTIFIER,
        "kind": kind,
        "folder": folder.name,
        "recipe": recipe,
        "files": list(dict.fromkeys(files)),
    }


def write_marker(kind: Kind, folder: Path, recipe: str | None, files: Iterable[str]) -> None:
    """Write the marker of a folder that was just created.

    Raises:
        OSError: it cannot be written.
    """
    partial = folder / f".{MARKER}.{os.getpid()}.part"
    partial.write_text(json.dumps({KEY: made_by(kind, folder, recipe, files)}, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / MARKER)


def rename_marker(folder: Path) -> None:
    """Write the present name of a folder, which was just renamed, to its marker.

    Raises:
        OSError: the marker cannot be read or written.
    """
    about = json.loads((folder / MARKER).read_bytes())[KEY]
    write_marker(about["kind"], folder, about["recipe"], about["files"])


def holds_results(folder: Path) -> bool:
    """Whether a folder holds results of this tool: a run, a recording, a study or a measured node."""
    return marked_kind(folder) in ("run", "recording", "study", "node", "fit")


def marked_kind(folder: Path) -> str | None:
    """The kind of a folder by its marker, which is not checked further; ``None`` without one."""
    try:
        about = json.loads((folder / MARKER).read_bytes())[KEY]
        return str(about["kind"]) if about["marker"] == _IDENTIFIER else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def read_marker(descriptor: int, name: str) -> Marker:
    """Read the marker of an open folder with this name.

    Raises:
        NotOwned: it has no marker, or one that is not valid.
    """
    return parse(_content(descriptor, MARKER), name, MARKER)


def read_marker_beside(path: Path, folder: str) -> Marker:
    """Read the marker of the folder named ``folder`` from a file next to it.

    Raises:
        NotOwned: as :func:`read_marker`.
    """
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotOwned(f"{path} cannot be read: {error.strerror}") from None
    try:
        return parse(_content(descriptor, path.name), folder, path.name)
    finally:
        os.close(descriptor)


def listed_files(path: Path, folder: str) -> set[str] | None:
    """Entries of the file list in a marker next to ``folder``; ``None`` if there is no such marker."""
    try:
        content = path.read_bytes()
        parse(content, folder, path.name)
        return set(json.loads(content)[KEY]["files"])
    except (OSError, NotOwned):
        return None


def parse(content: bytes, folder: str, file: str) -> Marker:
    """Parses the content of a marker.

    Args:
        content: bytes of the file.
        folder: name of the folder that it marks.
        file: name of the marker, for messages.

    Raises:
        NotOwned: it is not valid.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise NotOwned(f"the file {file} of the folder is not JSON") from None
    if not isinstance(document, dict):
        raise NotOwned(f"the file {file} of the folder is not a marker that dlio_torch wrote")
    about = document.get(KEY)
    if about is None:
        raise Unlisted(f"the marker {file} of the folder has no list of files", document.get("recipe"))
    fields = [about.get(key) for key in ("marker", "kind", "folder", "files")] if isinstance(about, dict) else []
    if not fields or fields[0] != _IDENTIFIER or not isinstance(fields[1], str) or not isinstance(fields[3], list):
        raise NotOwned(f"the file {file} of the folder is not a marker that dlio_torch wrote")
    if fields[2] != folder:
        raise NotOwned(f"the file {file} is the marker of a folder named {fields[2]!r}")
    recipe, files = about.get("recipe"), fields[3]
    if not all(isinstance(entry, str) for entry in files) or not isinstance(recipe, str | None):
        raise NotOwned(f"the marker {file} of the folder is damaged")
    try:
        return Marker(fields[1], recipe, FileNames(files))
    except ValueError as error:
        raise NotOwned(f"the marker {file} of the folder is damaged: {error}") from None


def _content(folder: int, name: str) -> bytes:
    """The bytes of a marker, which must be a regular file of this user."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise Unlisted(f"the folder has no marker {name}") from None
    except OSError as error:
        raise NotOwned(f"the marker {name} of the folder cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MOST_BYTES:
            raise NotOwned(f"the file {name} of the folder is not a marker")
        if info.st_uid != os.geteuid():
            raise NotOwned(f"the marker {name} of the folder belongs to another user")
        return file.read()
