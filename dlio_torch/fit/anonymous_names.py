"""Replaces the names of a recording (files, folders, hosts, users, programs, classes, arrays) by numbered ones.

Names of arrays become ``array0``, ``array1``, ... in all values, cut or filled up to their former lengths,
which the headers of files depend on.  In text, the parts of recorded paths and the other names become ``name0``,
``name1``, ...; words of the options and numbers stay, since they name nothing.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from dlio_torch.config.fields import ROOT, Option, children, lookup
from dlio_torch.fit.finding import Finding, Findings
from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.fit.score import Score
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.fidelity.measures import LIMITS

_TOKEN = re.compile(r"[\w.+@~%*?\-\[\]{}]+")
_PIECE = re.compile(r"[^\W\d_]{4,}")
_EDGE = ".-?[]{}"
_PARTS = re.compile(r"([./;])")
_LIBRARIES = ("torch", "torchdata", "numpy", "builtins", "__main__")
_PUBLIC = "python recording recorded program files file data sample samples batch batches dlio dlio_torch run emulation"


class AnonymousNames:
    """Numbered names for those of a recording.

    Args:
        arrays: names of the arrays of a sample.
        words: other names: parts of paths, hosts, users, classes.
        stays: whether a part of the name of an array stays, as it says how the array is stored.
    """

    def __init__(
        self, arrays: Iterable[str], words: Iterable[str], stays: Callable[[str], bool] = lambda part: False
    ) -> None:
        public = _public_words()
        self._arrays = dict(_numbered_arrays(arrays, stays))
        self._spoken = {name for name in self._arrays if _is_private(name, public)}
        wanted = (word for word in dict.fromkeys(words) if _is_private(word, public) and word not in self._arrays)
        self._words = {word: f"name{number}" for number, word in enumerate(sorted(wanted))}
        self._pieces = {
            piece: name
            for word, name in self._words.items()
            for piece in _PIECE.findall(word)
            if piece.lower() not in public
        }
        odd = [word for word in (*self._spoken, *self._words) if not _TOKEN.fullmatch(word)]
        self._odd = sorted(odd, key=len, reverse=True)

    def text(self, text: str) -> str:
        """``text`` with numbered names."""
        for word in self._odd:
            text = text.replace(word, self._name(word))
        return _TOKEN.sub(lambda match: self._token(match.group()), text)

    def findings(self, values: Findings) -> Findings:
        """Findings with numbered names in values and evidence; their files are kept, since no recipe holds them."""
        return replace(
            values,
            values=tuple(self._finding(finding) for finding in values.values),
            gaps=tuple(self.text(gap) for gap in values.gaps),
        )

    def score(self, score: Score) -> Score:
        """A score with numbered names in its figures."""
        components = {
            component.name: replace(component, detail=self.text(component.detail))
            for component in score.comparison.components
        }
        left_out = tuple(self.text(line) for line in score.comparison.left_out)
        comparison = replace(score.comparison, components=tuple(components.values()), left_out=left_out)
        return replace(score, comparison=comparison, worst=components[score.worst.name])

    def _finding(self, finding: Finding) -> Finding:
        value = self._value(finding.key.split("."), finding.value)
        return replace(finding, value=value, evidence=self.text(finding.evidence))

    def _value(self, path: list[str], value: Any) -> Any:
        """A value of an option; a choice, a format, a type and a file beside the recipe are no names."""
        if isinstance(value, Mapping):
            return {name: self._value([*path, name], entry) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self._value([*path, "*"], entry) for entry in value]
        if not isinstance(value, str) or path[-1] in ("format", "dtype"):
            return value
        option = lookup(path)
        if option is not None and (option.choices or option.is_file):
            return value
        return self._arrays.get(value, self.text(value))

    def _name(self, word: str) -> str:
        return self._arrays.get(word) or self._words[word]

    def _token(self, token: str) -> str:
        """The token, or its numbered name: as a whole, without punctuation at its ends, or by a part of it."""
        bare = token.strip(_EDGE)
        for word in (token, bare):
            if word in self._words or word in self._spoken:
                return token.replace(word, self._name(word), 1)
        parts = (self._pieces[piece] for piece in _PIECE.findall(token) if piece in self._pieces)
        return next(parts, token)


def anonymous_names(training: RecordedTraining, fitted: FittedTraining, paths: Iterable[Path] = ()) -> AnonymousNames:
    """Numbered names for those of a recording.

    Args:
        training: the recording.
        fitted: the values that follow from it.
        paths: further paths whose parts are replaced, such as that of the result.
    """
    stays = facts(fitted.data.format).states_encoding
    return AnonymousNames(_array_names(training, fitted), [*_words(training), *_of_paths(map(str, paths))], stays)


def _numbered_arrays(names: Iterable[str], stays: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Names of arrays and their numbered names; each part between dots, slashes and semicolons has a number."""
    known = [name for name in dict.fromkeys(names) if name]
    parts = dict.fromkeys(part for name in known for part in _PARTS.split(name))
    private = [part for part in parts if any(map(str.isalpha, part)) and not stays(part)]
    numbered = {part: _numbered(number, len(part)) for number, part in enumerate(private)}
    for name in known:
        yield name, "".join(numbered.get(part, part) for part in _PARTS.split(name))


def _numbered(number: int, length: int) -> str:
    """``array<number>`` with this length, or longer where the number does not fit."""
    digits = str(number)
    if length == 1 and number < len(ascii_lowercase):
        return ascii_lowercase[number]
    if length <= len(digits):
        return f"array{digits}"
    return f"{'array'[: length - len(digits)]}{digits}".ljust(length, "_")


def _array_names(training: RecordedTraining, fitted: FittedTraining) -> Iterator[str]:
    """Names of arrays in the files and in the batches."""
    for finding in fitted.findings.values:
        if finding.key in ("dataset.fields", "dataset.once"):
            yield from _names_within(finding.value)
    inspection = fitted.data.inspection
    if inspection is not None:
        yield from (field.name for field in inspection.description.fields)
        yield from (array.name for array in inspection.description.arrays)
    for entry in training.torch.arrays:
        yield from (array.path for array in entry.arrays if not array.path.isdigit())


def _names_within(value: Any) -> Iterator[str]:
    """Values of ``name`` in nested lists and mappings."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str):
            yield value["name"]
        value = list(value.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _names_within(entry)


def _words(training: RecordedTraining) -> Iterator[str]:
    """Names of files, hosts, users, programs and classes."""
    recording, torch = training.recording, training.torch
    about = recording.facts
    yield from _of_paths(str(name) for name in recording.events.frame["file"].cat.categories)
    yield from _of_paths([str(recording.path), str(about.get("cwd", "")), *map(str, about.get("command") or ())])
    yield from _of_paths(state.path for state in torch.saves if state.path)
    yield from (process.host for process in recording.events.processes if process.host)
    environment = about.get("environment")
    if isinstance(environment, Mapping) and environment.get("host"):
        yield str(environment["host"])
    yield from (socket.gethostname(), *_user())
    classes = [dataset.class_name for dataset in torch.datasets]
    for loader in torch.loaders:
        sampler = str(loader.sampler.get("class") or "")
        classes += [loader.class_name, sampler, loader.batch_sampler or "", loader.collate or ""]
    yield from _of_classes(classes)


def _user() -> Iterator[str]:
    """Name of the user, if it is known."""
    try:
        yield getpass.getuser()
    except (OSError, KeyError):  # no account for this number
        return


def _of_classes(names: Iterable[str]) -> Iterator[str]:
    """Names of classes and their modules, but for those of public libraries."""
    for name in names:
        if name.partition(".")[0] not in _LIBRARIES[:-1]:
            yield name
            yield from name.split(".")


def _of_paths(paths: Iterable[str]) -> Iterator[str]:
    """Parts of paths, with and without suffixes."""
    for path in paths:
        for part in path.split(os.sep):
            yield part
            yield part.partition(".")[0]


def _is_private(word: str, public: frozenset[str]) -> bool:
    """Whether a word names something of the user: it has a letter, and is no word of the options."""
    return len(word) > 1 and any(letter.isalpha() for letter in word) and word.lower() not in public


def _public_words() -> frozenset[str]:
    """Words of the names and choices of options and of the names of components."""
    names = [*_option_words(ROOT), *LIMITS, *_LIBRARIES, _PUBLIC]
    return frozenset(word.lower() for name in names for word in (name, *re.split(r"[\W_]+", name)) if word)


def _option_words(option: Option) -> Iterator[str]:
    for name, child in (children(option) if option.kind in ("group", "list") else {}).items():
        yield name
        yield from map(str, child.choices)
        yield from _option_words(child)


def anonymous_evidence(names: AnonymousNames, evidence: Mapping[str, Any], values: Findings) -> dict[str, Any]:
    """Content of ``evidence.json`` with numbered names and without the path of the recording.

    Args:
        names: the numbered names.
        evidence: the content.
        values: the findings, with numbered names.
    """
    return {
        **evidence,
        "recording": None,
        "values": [asdict(finding) for finding in values.values],
        "not_reproduced": list(values.gaps),
        "notes": [names.text(note) for note in evidence["notes"]],
    }
