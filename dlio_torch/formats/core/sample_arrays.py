"""Choice of the arrays that make a sample among all arrays of a file, by the lengths and names of their first axes.

Arrays belong to one sample if their first axes agree.  Several sets of such arrays, the splits of a data set such as
``train/x`` and ``test/x``, and one array or group per sample are not decided here: the user is asked.  A single set of
several arrays that also holds most bytes is the sample; arrays of other lengths, such as names of classes, are left
out.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import yaml

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import OpenQuestion

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test", "val": "validation",
    "valid": "validation", "validation": "validation", "dev": "validation", "eval": "evaluation",
}  # fmt: skip
"""Words in names of arrays -> the split that they mean."""
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
_LEAST_NUMBERED = 3  # arrays whose names differ in a number only, to be taken for one per sample
_SHOWN = 4


@dataclass(frozen=True)
class Candidate:
    """Array that could belong to a sample.

    Attributes:
        entry: as ``dataset.fields`` takes it.
        rows: samples that it would hold.
        axis: key of its first axis; arrays of one sample have the same.
        axis_name: name of that axis, where the format has names; empty: its length names it.
    """

    entry: FieldConfig
    rows: int
    axis: Hashable
    axis_name: str = ""

    @property
    def name(self) -> str:
        """Path of the array in the file."""
        return self.entry.name

    @property
    def nbytes(self) -> float:
        """Bytes of all elements; of variable-length samples, by their mean length."""
        length = self.entry.length_mean or 1.0
        return self.rows * length * math.prod(self.entry.shape) * np.dtype(self.entry.dtype).itemsize


@dataclass(frozen=True)
class SampleArrays:
    """Result of the choice.

    Attributes:
        chosen: arrays of a sample; empty: they cannot be told.
        left_out: why an array is not read, by its name.
        notes: further facts, one line each.
        question: what the user must decide; ``None``: nothing.
    """

    chosen: tuple[Candidate, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    question: OpenQuestion | None = None


def choose_arrays(
    candidates: Sequence[Candidate],
    lost: Sequence[Candidate] = (),
    preferred: Hashable = None,
    *,
    companions: Collection[Hashable] = (),
    numbers_tell: bool = True,
) -> SampleArrays:
    """Chooses the arrays of a sample.

    Args:
        candidates: arrays that can be read, in the order of the file.
        lost: arrays of numbers that are samples by their first axis, but cannot be read; without them, what is left
            may be of no use, so the user is asked.
        preferred: key of the first axis that counts samples, where the file states it; ``None``: it does not.
        companions: keys of the first axes of arrays that cannot be read, such as strings: an array with such an array
            beside it is a set of several.
        numbers_tell: arrays whose names differ in a number only may be one sample each; else they are arrays of one
            sample, where their first axes agree.
    """
    sample = _choice(candidates, preferred, companions, numbers_tell)
    missing = [item for item in lost if sample.chosen and item.rows == sample.chosen[0].rows]
    if not missing:
        return sample
    left = f"of the arrays of a sample, {_names(missing)} cannot be read; {_names(sample.chosen)} can"
    return replace(sample, chosen=(), question=OpenQuestion(left, setting_of(sample.chosen)))


def _choice(
    candidates: Sequence[Candidate], preferred: Hashable, companions: Collection[Hashable], numbers_tell: bool
) -> SampleArrays:
    numbered = _numbered(candidates) if numbers_tell else {}
    if numbered:
        return _one_per_sample(numbered, candidates)
    splits = split_sets(candidates)
    sets = splits or _by_axis(candidates)
    if preferred is not None and any(members[0].axis == preferred for members in sets):
        return _chosen([item for item in candidates if item.axis == preferred], candidates)
    if len(sets) <= 1:
        return SampleArrays(tuple(candidates))
    shared = [members for members in sets if len(members) > 1 or members[0].axis in companions]
    if not splits and len(shared) == 1 and shared[0] is max(sets, key=_bytes_of):
        return _chosen(shared[0], candidates)
    return _open_choice(sets)


def _chosen(members: Sequence[Candidate], candidates: Sequence[Candidate]) -> SampleArrays:
    axis = _axis(members[0])
    left_out = {
        item.name: f"its first axis is {_axis(item)}, that of the samples {axis}"
        for item in candidates
        if item not in members
    }
    return SampleArrays(tuple(members), left_out)


def _open_choice(sets: Sequence[Sequence[Candidate]]) -> SampleArrays:
    """Leaves the decision to the user, the set with most arrays first."""
    ordered = sorted(sets, key=lambda members: (-len(members), _split_of(members[0].name) != "train", -members[0].rows))
    texts = [f"{_names(members)} ({_axis(members[0])})" for members in ordered]
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    problem = f"the file holds arrays of several sets of samples: {'; '.join(texts[:_SHOWN])}{more}"
    notes = tuple(f"for {texts[i]}: {setting_of(members)}" for i, members in enumerate(ordered[:_SHOWN]))
    left_out = {item.name: "one of several sets of samples, see below" for members in sets for item in members}
    return SampleArrays((), left_out, notes, OpenQuestion(problem, setting_of(ordered[0])))


def setting_of(members: Sequence[Candidate]) -> str:
    """``dataset.fields=[...]`` that reads these arrays."""
    entries = []
    for item in members:
        entry: dict[str, Any] = {"name": item.entry.name, "dtype": item.entry.dtype, "shape": list(item.entry.shape)}
        if item.entry.length_mean:
            entry["length_mean"] = item.entry.length_mean
        entries.append(entry)
    text = yaml.safe_dump(entries, default_flow_style=True, sort_keys=False, width=1 << 30, allow_unicode=True)
    return f"dataset.fields={text.strip()}"


def _by_axis(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    sets: dict[Hashable, list[Candidate]] = defaultdict(list)
    for item in candidates:
        sets[item.axis].append(item)
    return list(sets.values())


def _bytes_of(members: Sequence[Candidate]) -> float:
    return sum(item.nbytes for item in members)


def split_sets(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Sets of arrays by the split that their names mean; empty unless two names differ in their split alone."""
    splits: dict[tuple[str, Hashable], list[Candidate]] = defaultdict(list)
    same: dict[str, set[str]] = defaultdict(set)
    for item in candidates:
        split = _split_of(item.name)
        splits[split, item.axis].append(item)
        same[_WORD.sub(lambda word: "" if word[0].lower() in _SPLITS else word[0], item.name)].add(split)
    return list(splits.values()) if any(len(names - {""}) > 1 for names in same.values()) else []


def _split_of(name: str) -> str:
    """Split that the name of an array means; empty: none."""
    return next((split for word in _WORD.findall(name) if (split := _SPLITS.get(word.lower(), ""))), "")


def _numbered(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Arrays whose paths differ in numbers only, by their pattern, unless they belong to a sample with others."""
    patterns: dict[str, list[Candidate]] = defaultdict(list)
    for item in candidates:
        patterns[_NUMBER.sub("#", item.name)].append(item)
    others = {item.axis for members in patterns.values() if len(members) < _LEAST_NUMBERED for item in members}
    return {
        pattern: members
        for pattern, members in patterns.items()
        if len(members) >= _LEAST_NUMBERED and not {item.axis for item in members} <= others
    }


def _one_per_sample(numbered: Mapping[str, Sequence[Candidate]], candidates: Sequence[Candidate]) -> SampleArrays:
    count = max(map(len, numbered.values()))
    note = (
        f"{count} arrays or groups differ in a number only ({', '.join(list(numbered)[:_SHOWN])}): if each is one "
        "sample, stack them into one array per field, samples along the first axis; otherwise set "
        "dataset.fields to the arrays of a sample"
    )
    left_out = {
        item.name: "one of many arrays with numbered names" for members in numbered.values() for item in members
    }
    for item in candidates:
        left_out.setdefault(item.name, f"its first axis is {_axis(item)}; the samples are not known")
    return SampleArrays((), left_out, (note,))


def _axis(item: Candidate) -> str:
    return f"{item.axis_name} of {item.rows}" if item.axis_name else str(item.rows)


def _names(members: Sequence[Candidate]) -> str:
    names = [item.name for item in members]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
