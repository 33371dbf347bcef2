"""Reads the small files of ``/sys`` and ``/proc``, each of which may be absent or refuse to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.environment.cpu_lists import parse_cpus


def text_of(path: Path) -> str | None:
    """Content of a file without surrounding blanks; ``None`` if it cannot be read or is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """Whole number in a file; ``None`` if there is none."""
    text = text_of(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def cpus_of(path: Path) -> tuple[int, ...]:
    """CPU numbers in a file; empty if it cannot be read."""
    try:
        return parse_cpus(text_of(path) or "")
    except ValueError:
        return ()


def node_of(device: Path) -> int | None:
    """NUMA node of a device's folder; ``None`` if the kernel shows none, for which it writes -1."""
    number = number_of(device / "numa_node")
    return None if number is None or number < 0 else number


def entries(folder: Path) -> list[Path]:
    """Entries of a folder in the order of the numbers in their names; empty if it cannot be read."""
    try:
        return sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    except OSError:
        return []


def numbered(folder: Path, prefix: str) -> Iterator[tuple[int, Path]]:
    """Number and path of the entries that are named ``prefix`` and a number, in ascending order."""
    for path in entries(folder):
        if match := re.fullmatch(rf"{prefix}(\d+)", path.name):
            yield int(match[1]), path


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
