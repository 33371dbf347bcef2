"""Files that hold the arrays of the same samples, such as ``case_0_x.npy`` and ``case_0_y.npy``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MOST_FIELDS = 8
_TOKEN = re.compile(r"^(?P<stem>.*?)(?P<suffix>[_\-. ]?(?P<name>[A-Za-z][A-Za-z0-9]*))$")


@dataclass(frozen=True)
class FileGroups:
    """Files by sample and field.

    Attributes:
        suffixes: end of the name of each field's file, without ``.npy``, by the field's name; sorted.
        complete: stems that have a file of each field; sorted.
        missing: paths of the files that other fields of the same stem have.
    """

    suffixes: Mapping[str, str]
    complete: Sequence[str]
    missing: Sequence[str]


def groups_of(names: Sequence[str]) -> FileGroups | None:
    """Groups files by the last word of their names.

    Args:
        names: paths of ``.npy`` files, without this suffix.

    Returns:
        ``None`` if the names do not pair up: words are few, most stems have all of them, and none is without.
    """
    suffixes: dict[str, str] = {}
    stems: dict[str, set[str]] = defaultdict(set)
    for name in names:
        match = _TOKEN.match(name)
        if match is None:
            return None
        word, suffix = match["name"], match["suffix"]
        if suffixes.setdefault(word, suffix) != suffix:
            return None
        stems[match["stem"]].add(word)
    if not 2 <= len(suffixes) <= _MOST_FIELDS:
        return None
    complete = sorted(stem for stem, words in stems.items() if len(words) == len(suffixes))
    if len(complete) * 2 <= len(stems):
        return None
    missing = [stem + suffixes[word] for stem, words in stems.items() for word in suffixes.keys() - words]
    return FileGroups(dict(sorted(suffixes.items())), complete, sorted(missing))
