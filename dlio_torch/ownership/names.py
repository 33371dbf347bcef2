"""File list of a marker: relative paths, with ``*`` for any text in a name and ``{0..9}`` for a number.

``train/train_{0000000..0000041}.h5`` stands for 42 files, as in a shell; ``rank{0..}.csv`` has no last number.  An
entry that ends with ``/`` is a folder with a marker of its own.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable

MARKER = "dlio_torch.json"
"""Name of the file that marks a folder of this tool."""
LOCK = ".lock"
"""Name of the file that a process locks while it writes a data set or a study."""

_RANGE = re.compile(r"\{([0-9]+)\.\.([0-9]*)\}")
_SPECIAL = re.compile(r"[*?\[{]")
# Names of files while this tool writes them: .NAME.PID.part, .NAME.PID.part.COMPANION, .NAME.RANDOM.tmp, .NAME.tmp
_PART = re.compile(r"\.(.+)\.[0-9]+\.part(\..+)?")
_TEMPORARY = (re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tmp"), re.compile(r"\.(.+)\.tmp"))
_OLD = ".old"  # suffix of a folder that another one replaces

Parts = tuple[str, ...]


def numbers(last: int | None = None, digits: int = 1) -> str:
    """Pattern of a list entry for the numbers 0 to ``last`` (None: no end) with at least ``digits`` digits."""
    return f"{{{0:0{digits}d}..{'' if last is None else format(last, f'0{digits}d')}}}"


def literal(name: str) -> str:
    """List entry that matches this path alone."""
    return glob.escape(name).replace("{", "[{]")


def matched_numbers(part: str, name: str) -> tuple[int, ...] | None:
    """Numbers that ``name`` has where one path component of an entry has patterns for them; None if it differs."""
    return _Part(part).numbers(name)


class FileNames:
    """Parsed file list of a marker.

    Args:
        entries: entries of the list.

    Raises:
        ValueError: an entry leads out of the folder.
    """

    any_kind = False
    """Whether the list also covers links, sockets and pipes."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._literals: set[str] = {MARKER}
        self._parents: set[str] = set()
        files: list[Parts] = []
        folders: list[Parts] = []
        for entry in entries:
            parts = tuple(entry.removesuffix("/").split("/"))
            if any(part in ("", ".", "..") or "\0" in part for part in parts):
                raise ValueError(f"the marker lists {entry!r}, which leads out of the folder")
            if entry.endswith("/"):
                folders.append(parts)
            elif _SPECIAL.search(entry):
                files.append(parts)
            else:
                self._literals.add(entry)
                self._parents.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        self._files = [_Entry(parts) for parts in files]
        self._folders = [_Entry(parts) for parts in folders]

    def has_file(self, parts: Parts) -> bool:
        """Whether the list contains a complete or partial file; ``parts`` are the file's folders and name."""
        return any(
            "/".join(path) in self._literals or any(entry.matches(path) for entry in self._files)
            for path in _finished(parts)
        )

    def has_folder(self, parts: Parts) -> bool:
        """Whether the list contains files in this folder."""
        return any(
            "/".join(path) in self._parents or any(entry.begins_with(path) for entry in (*self._files, *self._folders))
            for path in _finished(parts)
        )

    def has_marked(self, parts: Parts) -> bool:
        """Whether the list contains a folder with its own marker at this path."""
        return any(entry.matches(parts) for entry in self._folders)


class AllNames(FileNames):
    """List that matches every file, for a folder to which no other program and no user writes."""

    any_kind = True

    def __init__(self) -> None:
        super().__init__(())

    def has_file(self, parts: Parts) -> bool:
        """Always true."""
        return True

    def has_folder(self, parts: Parts) -> bool:
        """Always true."""
        return True


class _Entry:
    def __init__(self, parts: Parts) -> None:
        self._parts = [_Part(part) for part in parts]

    def matches(self, parts: Parts) -> bool:
        return len(parts) == len(self._parts) and self._agrees(parts)

    def begins_with(self, parts: Parts) -> bool:
        return len(parts) < len(self._parts) and self._agrees(parts)

    def _agrees(self, parts: Parts) -> bool:
        return all(pattern.matches(part) for pattern, part in zip(self._parts, parts, strict=False))


class _Part:
    """One path component of a list entry."""

    def __init__(self, text: str) -> None:
        pieces = _RANGE.split(text)
        texts = [fnmatch.translate(piece)[:-2] for piece in pieces[::3]]  # without the anchor at the end
        self._pattern = re.compile("([0-9]+)".join(texts))
        self._ranges = list(zip(pieces[1::3], pieces[2::3], strict=True))

    def matches(self, name: str) -> bool:
        return self.numbers(name) is not None

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Numbers in a name that matches; None for another name."""
        match = self._pattern.fullmatch(name)
        if match is None or not all(
            text == str(int(text)).zfill(len(first)) and int(first) <= int(text) <= int(last or text)
            for text, (first, last) in zip(match.groups(), self._ranges, strict=True)
        ):
            return None
        return tuple(map(int, match.groups()))


def _finished(parts: Parts) -> list[Parts]:
    """Yields the path itself and the paths of which it may be a partial file."""
    paths: list[Parts] = [()]
    for part in parts:
        names = [part]
        if (match := _PART.fullmatch(part)) is not None:
            names.append(match[1] + (match[2] or "").removesuffix(_OLD))
        names += [match[1] for pattern in _TEMPORARY if (match := pattern.fullmatch(part)) is not None]
        paths = [(*path, name) for path in paths for name in names]
    return paths
