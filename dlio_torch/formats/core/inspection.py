"""Inspection of a path of unknown content: the format of its files, and the options with which it is read.

Only headers are read, of one file of each kind.  Libraries that may crash on a damaged file run in a process apart.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion
from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.probe import inspect_files
from dlio_torch.formats.core.recognition import recognised_file, recognised_folder
from dlio_torch.formats.core.registry import all_facts, facts, format_class, load_function

_MOST_FILES = 200_000  # names that are listed
_MOST_KINDS = 30  # suffixes of which one file is opened
_SHOWN = 4


@dataclass(frozen=True)
class Inspection:
    """Result of the inspection of a file, a folder or a pattern.

    Attributes:
        path: as given.
        format: value of ``dataset.format``.
        described: the file, or the folder that is one data set, from which the description was made.
        files: number of files of this format below ``path``; 1 for a folder that is one data set.
        other_files: number of files of other kinds, by suffix.
        description: content of ``described``.
    """

    path: str
    format: str
    described: Path
    files: int
    other_files: Mapping[str, int]
    description: DataDescription

    def settings(self) -> dict[str, Any]:
        """Options of the group ``dataset`` that read these data, without ``path``; as a recipe holds them."""
        tree: dict[str, Any] = {"format": self.format}
        if self.description.options:
            tree[facts(self.format).option_group] = dict(self.description.options)
        if self.description.fields:
            tree["fields"] = [_changed(entry) for entry in self.description.fields]
        return tree


def answered(inspection: Inspection, settings: Mapping[str, str]) -> Inspection:
    """The inspection without the questions that ``settings`` (dotted key -> value) answer."""
    questions = inspection.description.questions
    left = tuple(question for question in questions if question.setting.partition("=")[0] not in settings)
    return replace(inspection, description=replace(inspection.description, questions=left))


@dataclass
class _Listing:
    """Files below a folder.

    Attributes:
        files: the files of each suffix.
        counts: files of each suffix.
        data_sets: folders that are data sets by themselves, with their formats.
    """

    files: dict[str, list[Path]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    data_sets: list[tuple[Path, FormatFacts]] = field(default_factory=list)

    def add(self, path: Path) -> None:
        suffix = path.suffix.lower()
        self.counts[suffix] += 1
        self.files.setdefault(suffix, []).append(path)


def inspect_path(path: str, format_name: str = "") -> Inspection:
    """Inspects a file, a folder, or a pattern with ``*``.

    Args:
        path: as the user wrote it.
        format_name: format of the data, where the user knows; empty: it is recognised.

    Raises:
        ConfigError: no such format.
        DataError: nothing is there, its format is unknown, or it cannot be read.
        MissingPackageError: the library of the format is not installed.
    """
    place = Path(path).expanduser()
    with os_errors(place):
        if not place.exists():
            names = sorted(glob.glob(os.path.expanduser(path), recursive=True))
            if not names:
                raise DataError(f"{path} does not exist", hint="give the path of a file or a folder of data")
            return _of_files(path, _listed(map(Path, names)), format_name)
        if place.is_dir():
            kind = facts(format_name) if format_name else recognised_folder(place)
            if kind is not None and (not format_name or kind.recognises_folder(place, sorted(os.listdir(place)))):
                return _described(path, kind, [place], 1, {})
            return _of_files(path, _below(place), format_name)
        if not place.is_file():
            raise DataError(f"{path} is neither a file nor a folder", hint="give the path of a file or a folder")
        kind = facts(format_name) if format_name else recognised_file(place)
        if kind is None:
            raise _unknown(path, place)
        return _described(path, kind, [place], 1, {})


def _of_files(path: str, listing: _Listing, format_name: str) -> Inspection:
    """Describes the most frequent format among the files of a listing."""
    for folder, kind in listing.data_sets:
        if not format_class(kind.name).in_folders:
            raise DataError(
                f"{path} holds {len(listing.data_sets)} folders that are data sets: "
                f"{_some([str(inner) for inner, _ in listing.data_sets])}",
                hint=f"name one of them, for example {folder}",
            )
    kinds: Counter[str] = Counter(kind.name for _, kind in listing.data_sets)
    places: dict[str, list[Path]] = {}
    for folder, kind in listing.data_sets:
        places.setdefault(kind.name, []).append(folder)
    others = dict(listing.counts)
    for suffix, count in listing.counts.most_common(_MOST_KINDS):
        file = min(listing.files[suffix])
        kind_of_file = recognised_file(file) if file.is_file() else None
        if format_name and kind_of_file is None and not kinds:
            kind_of_file = facts(format_name)
        if kind_of_file is not None and format_name in ("", kind_of_file.name):
            kinds[kind_of_file.name] += count
            places.setdefault(kind_of_file.name, []).extend(listing.files[suffix])
            del others[suffix]
    if not kinds:
        if not listing.counts:
            raise DataError(f"{path} contains no files", hint="give the path of a file or a folder of data")
        raise _unknown(path, min(listing.files[listing.counts.most_common(1)[0][0]]))
    name, files = kinds.most_common(1)[0]
    for other, count in kinds.items():
        if other != name:
            others[f"format {other}"] = count
    return _described(path, facts(name), sorted(places[name]), files, others)


def _described(
    path: str, kind: FormatFacts, places: Sequence[Path], files: int, others: Mapping[str, int]
) -> Inspection:
    """Describes the first of sorted files, or data sets that are folders."""
    place = places[0]
    if kind.describe:
        describe = load_function(kind.name, kind.describe)
        if kind.compares_files:
            describe = partial(describe, files=places)
        (description,) = inspect_files(describe, [place], apart=format_class(kind.name).may_crash)
    else:
        description = DataDescription(
            questions=(
                OpenQuestion(
                    f"files of format {kind.name} do not state the arrays of a sample",
                    "dataset.fields=[{name: data, dtype: float32, shape: [64]}]",
                ),
            )
        )
    return Inspection(path, kind.name, place, files, others, description)


def _below(folder: Path) -> _Listing:
    """Lists the files below a folder; folders that are data sets by themselves are not entered."""
    listing = _Listing()
    for parent, folders, files in os.walk(folder):
        inside = Path(parent)
        for name in sorted(folders):
            kind = recognised_folder(inside / name)
            if kind is not None:
                listing.data_sets.append((inside / name, kind))
                folders.remove(name)
        folders.sort()
        for name in files:
            if not name.startswith("."):
                listing.add(inside / name)
        if listing.counts.total() > _MOST_FILES:
            break
    return listing


def _listed(paths: Iterator[Path]) -> _Listing:
    listing = _Listing()
    for path in paths:
        kind = recognised_folder(path) if path.is_dir() else None
        if kind is not None:
            listing.data_sets.append((path, kind))
        elif path.is_file():
            listing.add(path)
    return listing


def _changed(entry: FieldConfig) -> dict[str, Any]:
    """The options of a field that differ from their defaults, and always its name, type and shape."""
    plain = asdict(FieldConfig())
    return {
        key: value for key, value in asdict(entry).items() if value != plain[key] or key in ("name", "dtype", "shape")
    }


def _unknown(path: str, file: Path) -> DataError:
    with open(file, "rb") as opened:
        head = opened.read(8)
    known = ", ".join(sorted(kind.name for kind in all_facts() if not kind.in_memory))
    shown = f"{file.name} " if str(file) != path else ""
    return DataError(
        f"{path}: the format of {shown or 'this file '}is unknown (it begins with the bytes {head.hex(' ')})",
        hint=f"if you know it, set dataset.format to one of {known}",
    )


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_SHOWN]) + (" ..." if len(texts) > _SHOWN else "")
