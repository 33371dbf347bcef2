"""Inspection of a path of unknown content: the format of its files, and the options with which it is read.

Only headers are read, of one file of each kind.  Libraries that may crash on a damaged file run in a process apart.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from dlio_torch.config.fields import lookup
from dlio_torch.config.layers import COMMAND_LINE, show
from dlio_torch.config.schema import FieldConfig
from dlio_torch.config.yamlfile import parse_value
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.files.path_pattern import matching
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion
from dlio_torch.formats.core.data_listing import DataListing, files_below, files_listed
from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.probe import inspect_files
from dlio_torch.formats.core.recognition import recognised_file, recognised_folder
from dlio_torch.formats.core.registry import all_facts, facts, format_class, load_function
from dlio_torch.units import counted

_MOST_KINDS = 30  # suffixes of which one file is opened
_SHOWN = 4


@dataclass(frozen=True)
class Inspection:
    """Result of the inspection of a file, a folder or a pattern.

    Attributes:
        path: as given; of a folder that holds nothing but a folder that is one data set, that folder.
        format: value of ``dataset.format``.
        described: the file, or the folder that is one data set, from which the description was made.
        files: number of files of this format below ``path``; 1 for a folder that is one data set.
        other_files: number of files of other kinds, by suffix.
        description: content of ``described``.
        given: settings of the user, dotted key -> value.
        is_partial: whether there are more files than were counted.
    """

    path: str
    format: str
    described: Path
    files: int
    other_files: Mapping[str, int]
    description: DataDescription
    given: Mapping[str, str] = field(default_factory=dict)
    is_partial: bool = False

    def settings(self) -> dict[str, Any]:
        """Options of the group ``dataset`` that read these data, without ``path``; as a recipe holds them."""
        tree: dict[str, Any] = {"format": self.format}
        if self.description.options:
            tree[facts(self.format).option_group] = dict(self.description.options)
        if self.description.fields:
            tree["fields"] = [_changed(entry) for entry in self.description.fields]
        for key, value in self.given.items():
            set_option(tree, key, value)
        return tree


def answered(inspection: Inspection, settings: Mapping[str, str]) -> Inspection:
    """The inspection with ``settings`` (dotted key -> value), and without the questions that they answer.

    Raises:
        ConfigError: a setting is no YAML, or names an element that a list does not have.
    """
    questions = inspection.description.questions
    left = tuple(question for question in questions if question.setting.partition("=")[0] not in settings)
    result = replace(inspection, description=replace(inspection.description, questions=left), given=dict(settings))
    result.settings()  # refuses a wrong setting before anything is printed
    return result


def set_option(tree: dict[str, Any], key: str, value: str) -> None:
    """Sets ``dataset.<group>.<option>``, or an element as ``dataset.fields.0.dtype``, in the options of ``dataset``.

    Args:
        tree: the options, as a recipe holds them.
        key: dotted key of an option.
        value: YAML.

    Raises:
        ConfigError: the value is no YAML, or a list has no such element.
    """
    setting = f"{key}={show(value)} ({COMMAND_LINE})"
    parse_value(value, setting)  # refuses tags and nesting without end
    try:
        content = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2026-02-31
        raise ConfigError(f"{setting}: malformed YAML: {error}", hint="put the value in quotes") from None
    node: Any = tree
    *groups, name = key.split(".")[1:]
    for depth, group in enumerate(groups):
        if isinstance(node, dict):
            node = node.setdefault(group, [] if _is_list(key, depth + 2) else {})
        else:
            node = _elements(node, group, key, depth + 1, setting)[int(group)]
    if isinstance(node, dict):
        node[name] = content
    else:
        _elements(node, name, key, len(groups) + 1, setting)[int(name)] = content


def _is_list(key: str, parts: int) -> bool:
    """Whether the first ``parts`` parts of a key name a list."""
    option = lookup(key.split(".")[:parts])
    return option is not None and option.kind in ("list", "values")


def _elements(node: Any, name: str, key: str, parts: int, setting: str) -> list[Any]:
    """A list that has an element ``name``; the first ``parts`` parts of ``key`` name the list."""
    above = ".".join(key.split(".")[:parts])
    if not isinstance(node, list):
        raise ConfigError(f"{setting}: {above} is {show(node)}, which has no {name}", hint=f"correct {above}")
    if int(name) < len(node):
        return node
    last = f"the last one is {above}.{len(node) - 1}" if node else f"set the whole list: {above}=[...]"
    raise ConfigError(f"{setting}: {above} has {counted(len(node), 'element')}", hint=last)


def inspect_path(path: str, format_name: str = "") -> Inspection:
    """Inspects a file, a folder, or a pattern with ``*`` or ``{000..009}``.

    Args:
        path: as the user wrote it.
        format_name: format of the data, where the user knows; empty: it is recognised.

    Raises:
        ConfigError: no such format.
        DataError: nothing is there, its format is unknown, or it cannot be read.
        MissingPackageError: the library of the format is not installed.
    """
    if not path:
        raise DataError("the path is empty", hint="give the path of a file or a folder of data")
    place = Path(path).expanduser()
    with os_errors(place):
        if not place.exists():
            names = matching(path)
            if not names or place.is_symlink():
                raise _missing(path, place)
            return _of_files(path, files_listed(map(Path, names)), format_name)
        if place.is_dir():
            kind = facts(format_name) if format_name else recognised_folder(place)
            if kind is not None and (not format_name or _is_folder_of(kind, place)):
                return _described(path, kind, [place], 1, {})
            return _of_files(path, files_below(place), format_name)
        if not place.is_file():
            raise DataError(f"{path} is neither a file nor a folder", hint="give the path of a file or a folder")
        kind = facts(format_name) if format_name else recognised_file(place)
        if kind is None:
            raise _unknown(path, place)
        return _described(path, _reading(kind, format_name), [place], 1, {})


def _is_folder_of(kind: FormatFacts, folder: Path) -> bool:
    """Whether a folder as a whole is one data set of the format that the user named."""
    return kind.takes_any_folder or recognised_folder(folder, [kind]) is not None


def _reading(kind: FormatFacts, format_name: str) -> FormatFacts:
    """The format that reads existing files of a kind, unless the user has named one."""
    return facts(kind.described_as) if kind.described_as and not format_name else kind


def _of_files(path: str, listing: DataListing, format_name: str) -> Inspection:
    """Describes the most frequent format among the files of a listing."""
    if not all(format_class(kind.name).in_folders for _, kind in listing.data_sets):
        return _of_inner_folder(path, listing, format_name)
    kinds: Counter[str] = Counter(kind.name for _, kind in listing.data_sets)
    places: dict[str, list[Path]] = {}
    for folder, kind in listing.data_sets:
        places.setdefault(kind.name, []).append(folder)
    others = dict(listing.counts)
    for suffix, count in listing.most_common()[:_MOST_KINDS]:
        file = listing.first_of(suffix)
        kind_of_file = recognised_file(file) if file.is_file() else None
        if format_name and kind_of_file is None and not kinds:
            kind_of_file = facts(format_name)
        if kind_of_file is not None and format_name in ("", kind_of_file.name):
            kind_of_file = _reading(kind_of_file, format_name)
            kinds[kind_of_file.name] += count
            places.setdefault(kind_of_file.name, []).extend(listing.files[suffix])
            del others[suffix]
    if not kinds:
        if not listing.counts:
            raise _no_files(path, listing)
        raise _unknown(path, listing.first_of(listing.most_common()[0][0]))
    name, files = min(kinds.items(), key=lambda item: (-item[1], item[0]))
    for other, count in sorted(kinds.items()):
        if other != name:
            others[f"of format {other} (dataset.format={other} reads them)"] = count
    others |= listing.not_data()
    return replace(_described(path, facts(name), sorted(places[name]), files, others), is_partial=listing.is_partial)


def _of_inner_folder(path: str, listing: DataListing, format_name: str) -> Inspection:
    """Describes the only folder of a listing that is one data set.

    Raises:
        DataError: there are several, or its format is not the one that the user names.
    """
    (folder, kind), *more = listing.data_sets
    if more or format_name not in ("", kind.name):
        count = counted(len(more) + 1, "folder that is a data set", "folders that are data sets")
        names = _some([str(inner) for inner, _ in listing.data_sets])
        raise DataError(f"{path} holds {count}: {names}", hint=f"name one of them, for example {folder}")
    result = _described(str(folder), kind, [folder], 1, {**listing.counts, **listing.not_data()})
    note = f"the data set is the folder {folder.name} in {path}, so dataset.path must name that folder"
    notes = (note, *result.description.notes)
    return replace(result, description=replace(result.description, notes=notes), is_partial=listing.is_partial)


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


def _changed(entry: FieldConfig) -> dict[str, Any]:
    """The options of a field that differ from their defaults, and always its name, type and shape."""
    plain = asdict(FieldConfig())
    return {
        key: value for key, value in asdict(entry).items() if value != plain[key] or key in ("name", "dtype", "shape")
    }


def _missing(path: str, place: Path) -> DataError:
    hint = "give the path of a file or a folder of data"
    if place.is_symlink():
        return DataError(f"{path} is a link to {os.readlink(place)}, which does not exist", hint=hint)
    return DataError(f"{path} does not exist", hint=hint)


def _no_files(path: str, listing: DataListing) -> DataError:
    if listing.folders:
        folders = counted(listing.folders, "folder")
        return DataError(f"{path} matches {folders} and no file", hint=f"name the files in them: {path}/*")
    entries = "; ".join(f"{count} {kind}" for kind, count in listing.not_data().items())
    only = f" (it holds {entries})" if entries else ""
    return DataError(f"{path} contains no files{only}", hint="give the path of a file or a folder of data")


def _unknown(path: str, file: Path) -> DataError:
    with open(file, "rb") as opened:
        head = opened.read(8)
    if not head:
        return DataError(f"{file} is empty (0 bytes)", hint="give the path of a file or a folder of data")
    known = ", ".join(sorted(kind.name for kind in all_facts() if not kind.in_memory))
    shown = f"{file.name} " if str(file) != path else ""
    return DataError(
        f"{path}: the format of {shown or 'this file '}is unknown (it begins with the bytes {head.hex(' ')})",
        hint=f"if you know it, set dataset.format to one of {known}",
    )


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_SHOWN]) + (" ..." if len(texts) > _SHOWN else "")
