"""Lines of the files ``rank<r>-<pid>[-n].torch``, one JSON object each; of damaged files, the usable lines."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.iotrace.events.call_names import printable

FILE_NAME = re.compile(r"rank(\d+)-(\d+)(?:-\d+)?\.torch")
"""Name of such a file: rank and process id."""


@dataclass(frozen=True)
class TorchLine:
    """One line.

    Attributes:
        kind: what it tells.
        values: its fields, with the rank and the process id of the file; ``class`` is named ``class_name``.
    """

    kind: str
    values: dict[str, Any]


def take_lines(path: Path, take: Callable[[TorchLine], None], notes: list[str]) -> None:
    """Calls a function with each line of a file; adds notes on what is damaged.

    Args:
        path: the file, by its name one of :data:`FILE_NAME`.
        take: the function; a line for which it raises KeyError, TypeError or ValueError counts as damaged.
        notes: list to which notes are added.
    """
    name = FILE_NAME.fullmatch(path.name)
    if name is None:
        return
    owner = {"rank": int(name[1]), "pid": int(name[2])}
    damaged = 0
    for line in _lines(path, notes):
        try:
            entry = json.loads(line)
            take(TorchLine(entry.pop("kind"), {**_renamed(entry), **owner}))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged += 1
    if damaged:
        notes.append(f"{path.name}: {damaged} lines are damaged")


def torch_notes(directory: Path) -> list[str]:
    """Notes of all such files of an events folder, each once."""
    notes: list[str] = []
    for path in sorted(directory.glob("rank*.torch")):
        for line in _lines(path, notes):
            if line.startswith(b'{"kind":"note"') or line.startswith(b'{"kind": "note"'):
                with contextlib.suppress(ValueError, KeyError):
                    notes.append(printable(str(json.loads(line)["text"])))
    return list(dict.fromkeys(notes))


def _lines(path: Path, notes: list[str]) -> Iterator[bytes]:
    """Whole lines of a file; its end may be a free part of zeros, or a line that was cut."""
    try:
        lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
        return
    if lines.pop() != b"":
        notes.append(f"{path.name}: the last line is cut off")
    yield from lines


def _renamed(entry: dict[str, Any]) -> dict[str, Any]:
    if "class" in entry:
        entry["class_name"] = printable(str(entry.pop("class")))
    return entry
