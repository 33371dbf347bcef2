"""Listing of the files at a path of unknown content: how many of each suffix, and folders that are data sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.recognition import recognised_folder
from dlio_torch.formats.core.registry import all_facts
from dlio_torch.ownership.marker import holds_results

MOST_FILES = 200_000
"""Number of files after which a listing stops."""


@dataclass
class DataListing:
    """Files below a folder, or of a pattern.

    Attributes:
        files: the files of each suffix.
        counts: files of each suffix.
        data_sets: folders that are data sets by themselves, with their formats.
        broken_links: links whose target does not exist.
        unreadable: folders that this user may not list.
        folders: folders of a pattern, which are not entered.
        is_partial: whether there are more files than were listed.
    """

    files: dict[str, list[Path]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    data_sets: list[tuple[Path, FormatFacts]] = field(default_factory=list)
    broken_links: int = 0
    unreadable: int = 0
    folders: int = 0
    is_partial: bool = False

    def add(self, path: Path, *, is_link: bool) -> None:
        """Count a file; a link to nothing is counted apart."""
        if is_link and not path.exists():
            self.broken_links += 1
            return
        suffix = path.suffix.lower()
        self.counts[suffix] += 1
        self.files.setdefault(suffix, []).append(path)

    def first_of(self, suffix: str) -> Path:
        """The alphabetically first file of a suffix that was listed."""
        return min(self.files[suffix])

    def most_common(self) -> list[tuple[str, int]]:
        """Suffixes and their counts, the most frequent first, equal ones by name."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))

    def not_data(self) -> dict[str, int]:
        """Numbers of entries that are no files, by kind."""
        kinds = {"broken links": self.broken_links, "folders without permission": self.unreadable}
        return {kind: count for kind, count in kinds.items() if count}


def files_below(folder: Path) -> DataListing:
    """Lists the files below a folder; folders that are data sets by themselves are not entered.

    Files are only listed, not looked at: a data set has hundreds of thousands of them, on file systems whose answers
    take long.
    """
    listing, known = DataListing(), all_facts()
    waiting = [folder]
    while waiting and not listing.is_partial:
        inside = waiting.pop()
        try:
            with os.scandir(inside) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            listing.unreadable += 1
            continue
        entered = []
        for entry in entries:
            path = inside / entry.name
            if not _is_folder(entry):
                if not entry.name.startswith("."):
                    listing.add(path, is_link=entry.is_symlink())
            elif not holds_results(path):  # of an earlier run in this folder
                kind = _kind_of(path, known)
                if kind is not None:
                    listing.data_sets.append((path, kind))
                elif not entry.is_symlink():
                    entered.append(path)
        waiting.extend(reversed(entered))
        listing.is_partial = listing.counts.total() > MOST_FILES
    return listing


def files_listed(paths: Iterable[Path]) -> DataListing:
    """Lists the files of a pattern."""
    listing, known = DataListing(), all_facts()
    for path in paths:
        if path.is_dir():
            kind = _kind_of(path, known)
            if kind is None:
                listing.folders += 1
            else:
                listing.data_sets.append((path, kind))
        elif (is_link := path.is_symlink()) or path.is_file():
            listing.add(path, is_link=is_link)
    return listing


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _kind_of(folder: Path, known: Iterable[FormatFacts]) -> FormatFacts | None:
    try:
        return recognised_folder(folder, known)
    except OSError:  # it is counted when it is entered
        return None
