"""Pairs the files of one recording with those of another.

Two equivalent programs may use different folders.  The first rule that finds a partner pairs two files, one to one::

    the user's mapping       a pattern of A and one of B; only matching files are compared.  Within a mapping the first
                             three rules below apply, then files are paired by bytes moved
    same path
    same end of the path     the longest end that occurs once on either side, at least the name
    same name but numbers    ``img_0007.npz`` and ``img_12.npz``: in order of their numbers, within folders
                             of the same name if possible, then without
    recorded requests        files that are only read, and raw files that repeat their requests: in order of their
                             paths; in order of the bytes moved if one side has more of them
    same use                 the same suffix, and read or written or both on both sides: in order of the
                             bytes moved

Files of one folder whose names differ in numbers only (a data set in many files) form one *part*; parts that pairs
connect form one part, too.  1,000 files of one program can then be compared with 10 of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.fidelity.pairing_rules import MAPPED_RULES, RULES, Rule, SideFiles, shape

Ints = NDArray[np.int64]
Wanted = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Pairing:
    """Numbers for the files of both sides: equal numbers mean the same file, or the same part.

    Args:
        file_a: for each file of A its number; -1: it matches no pattern of the user.
        file_b: for each file of B.
        part_a: for each file of A the number of its part.
        part_b: for each file of B.
        labels: a name for each number of a file.
        part_labels: a name for each number of a part.
        pairs_by_rule: number of pairs of each rule.
    """

    file_a: Ints
    file_b: Ints
    part_a: Ints
    part_b: Ints
    labels: tuple[str, ...]
    part_labels: tuple[str, ...]
    pairs_by_rule: dict[str, int]

    def said(self) -> str:
        """Number of pairs of each rule, as text."""
        return ", ".join(f"{count} by {rule}" for rule, count in self.pairs_by_rule.items()) or "none"


def mappings(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parses ``A=B``; ``A`` alone stands for ``A=A``.

    Raises:
        ConfigError: a side is empty.
    """
    patterns: list[tuple[str, str]] = []
    for text in texts:
        pattern_a, equals, pattern_b = text.partition("=")
        if not pattern_a or (equals and not pattern_b):
            raise ConfigError(
                f"--files {text} (command line): a side is empty",
                hint="write a path or pattern of A and one of B, for example --files '*train.h5=*.h5'",
            )
        patterns.append((pattern_a, pattern_b if equals else pattern_a))
    return tuple(patterns)


def pair(a: SideFiles, b: SideFiles, wanted: Wanted | None = None) -> Pairing:
    """Finds the partner of each file.

    Args:
        a: files of A, each once.
        b: files of B.
        wanted: the user's mapping: patterns of A and B (:func:`matches`); None: all files.

    Raises:
        ConfigError: a pattern matches no file.
    """
    everything = [(list(range(len(a.names))), list(range(len(b.names))))]
    teams = everything if wanted is None else _teams(a, b, wanted)
    pairs: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    for left, right in teams:
        pairs += _partners(a, left, b, right, RULES if wanted is None else MAPPED_RULES, counts)
    return _numbered(a, b, pairs, dict(counts), None if wanted is None else teams)


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern (``*`` matches ``/`` too) is the path, its end from a ``/`` on, or fits either."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def _teams(a: SideFiles, b: SideFiles, wanted: Wanted) -> list[tuple[list[int], list[int]]]:
    """Files of both sides for each mapping; a file belongs to the first mapping that it matches."""
    teams = []
    free_a, free_b = set(range(len(a.names))), set(range(len(b.names)))
    for pattern_a, pattern_b in wanted:
        team_a = [i for i in sorted(free_a) if matches(a.names[i], pattern_a)]
        team_b = [j for j in sorted(free_b) if matches(b.names[j], pattern_b)]
        for side, pattern, team, files in (("A", pattern_a, team_a, a), ("B", pattern_b, team_b, b)):
            if not team:
                known = ", ".join(files.names[k] for k in np.argsort(-(files.read + files.written))[:3])
                mapping = pattern_a if pattern_a == pattern_b else f"{pattern_a}={pattern_b}"
                raise ConfigError(
                    f"--files {mapping} (command line): recording {side} has no file whose name matches {pattern!r}",
                    hint=f"name files of recording {side}; the largest are {known}"
                    if known
                    else f"choose another recording; recording {side} has no data files",
                )
        free_a -= set(team_a)
        free_b -= set(team_b)
        teams.append((team_a, team_b))
    return teams


def _partners(
    a: SideFiles, left: list[int], b: SideFiles, right: list[int], rules: Sequence[Rule], counts: Counter[str]
) -> list[tuple[int, int]]:
    """Pairs by the first rule that finds a partner; counts the pairs of each rule."""
    pairs: list[tuple[int, int]] = []
    for rule in rules:
        partners = rule.find(a, left, b, right)
        if partners:
            counts[rule.name] += len(partners)
            pairs += partners
            taken_a, taken_b = {i for i, _ in partners}, {j for _, j in partners}
            left = [i for i in left if i not in taken_a]
            right = [j for j in right if j not in taken_b]
    return pairs


def _numbered(
    a: SideFiles,
    b: SideFiles,
    pairs: list[tuple[int, int]],
    counts: dict[str, int],
    teams: list[tuple[list[int], list[int]]] | None,
) -> Pairing:
    chosen_a = range(len(a.names)) if teams is None else sorted(i for team, _ in teams for i in team)
    chosen_b = range(len(b.names)) if teams is None else sorted(j for _, team in teams for j in team)
    file_a, file_b = np.full(len(a.names), -1), np.full(len(b.names), -1)
    labels: list[str] = []
    partner = dict(pairs)
    for i in chosen_a:
        file_a[i] = len(labels)
        if i in partner:
            file_b[partner[i]] = len(labels)
        labels.append(PurePosixPath(a.names[i]).name)
    for j in chosen_b:
        if file_b[j] < 0:
            file_b[j] = len(labels)
            labels.append(PurePosixPath(b.names[j]).name)
    if teams is None:
        keys_a: dict[int, Hashable] = {i: shape(a.names[i]) for i in chosen_a}
        keys_b: dict[int, Hashable] = {j: shape(b.names[j]) for j in chosen_b}
    else:
        keys_a = {i: number for number, (team, _) in enumerate(teams) for i in team}
        keys_b = {j: number for number, (_, team) in enumerate(teams) for j in team}
    parts = _Parts()
    for i, j in pairs:
        parts.join(("A", keys_a[i]), ("B", keys_b[j]))
    part_a, part_b = np.full(len(a.names), -1), np.full(len(b.names), -1)
    part_labels: dict[int, str] = {}
    for side, chosen, keys, part, names in (
        ("A", chosen_a, keys_a, part_a, a.names),
        ("B", chosen_b, keys_b, part_b, b.names),
    ):
        for index in chosen:
            part[index] = parts.number((side, keys[index]))
            part_labels.setdefault(int(part[index]), shape(PurePosixPath(names[index]).name))
    return Pairing(file_a, file_b, part_a, part_b, tuple(labels), tuple(part_labels.values()), counts)


class _Parts:
    """Disjoint sets (union-find), numbered in the order of requests."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._numbers: dict[Hashable, int] = {}

    def join(self, member: Hashable, other: Hashable) -> None:
        self._above[self._top(member)] = self._top(other)

    def number(self, member: Hashable) -> int:
        return self._numbers.setdefault(self._top(member), len(self._numbers))

    def _top(self, member: Hashable) -> Hashable:
        above = self._above.get(member, member)
        while above != member:
            # Each step on the way up is shortened for the next time.
            self._above[member] = self._above.get(above, above)
            member, above = above, self._above.get(above, above)
        return member
