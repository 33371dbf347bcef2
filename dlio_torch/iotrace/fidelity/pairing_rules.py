"""Rules that pair the files of two sides, see :mod:`dlio_torch.iotrace.fidelity.pairing`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Numbers, but for the one of a suffix such as .h5, .hdf5 or .mp4.
_NUMBERS = re.compile(r"\d+(?!\d|$)|(?<!\d)(?<!\.[a-z])(?<!\.[a-z]{2})(?<!\.[a-z]{3})\d+$")
_RANDOM = re.compile(r"^tmp[a-z0-9_]{6,10}(?=\.|$)")
_DEEPEST = 12


@dataclass(frozen=True)
class SideFiles:
    """The files of one side.

    Args:
        names: their paths.
        read: bytes read from each.
        written: bytes written to each.
    """

    names: tuple[str, ...]
    read: Ints
    written: Ints


@dataclass(frozen=True)
class Rule:
    """A rule that pairs files with equal ``key``.

    Args:
        name: what the rule is called.
        key: of one file.
        order: pairs the files of one key in this order; None: only a key that either side has once counts.
    """

    name: str
    key: Callable[[SideFiles, int], Hashable]
    order: Callable[[SideFiles, int], Any] | None = None

    def find(self, a: SideFiles, left: list[int], b: SideFiles, right: list[int]) -> list[tuple[int, int]]:
        """Finds pairs of indices, of files ``left`` of A and ``right`` of B."""
        groups_a, groups_b = self._groups(a, left), self._groups(b, right)
        pairs: list[tuple[int, int]] = []
        for key, of_a in groups_a.items():
            of_b = groups_b.get(key, [])
            if self.order is not None or len(of_a) == len(of_b) == 1:
                pairs += zip(of_a, of_b, strict=False)
        return pairs

    def _groups(self, files: SideFiles, members: list[int]) -> dict[Hashable, list[int]]:
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for index in members:
            groups[self.key(files, index)].append(index)
        if self.order is not None:
            for group in groups.values():
                group.sort(key=partial(self.order, files))
        return groups


@dataclass(frozen=True)
class RawFileRule(Rule):
    """Pairs files that are read with the raw files of recorded requests, whose names are numbers (``raw_file``)."""

    raw_file: re.Pattern[str] = re.compile(r"/files/\d{3,}/\d{6,}$")

    def find(self, a: SideFiles, left: list[int], b: SideFiles, right: list[int]) -> list[tuple[int, int]]:
        """Finds pairs, if one side alone has raw files."""
        raw_a = [index for index in left if self.raw_file.search(a.names[index])]
        raw_b = [index for index in right if self.raw_file.search(b.names[index])]
        if bool(raw_a) == bool(raw_b):
            return []
        left = raw_a or [index for index in left if a.read[index] and not a.written[index]]
        right = raw_b or [index for index in right if b.read[index] and not b.written[index]]
        if len(left) == len(right):  # raw files are numbered in the order of the recorded paths
            by_a, by_b = sorted(left, key=lambda index: a.names[index]), sorted(right, key=lambda index: b.names[index])
            return list(zip(by_a, by_b, strict=True))
        return super().find(a, left, b, right)


def _end(depth: int, files: SideFiles, index: int) -> str:
    """The last ``depth`` parts of a path."""
    return "/".join(files.names[index].rsplit("/", depth)[-depth:])


def _end_shape(depth: int, files: SideFiles, index: int) -> str:
    return shape(_end(depth, files, index))


def _use(files: SideFiles, index: int) -> tuple[str, bool, bool]:
    return PurePosixPath(files.names[index]).suffix, bool(files.read[index]), bool(files.written[index])


def _by_number(files: SideFiles, index: int) -> list[tuple[int, str]]:
    """Sort key that sorts ``img_9`` before ``img_10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", files.names[index])]


def _by_bytes(files: SideFiles, index: int) -> tuple[int, str]:
    return -int(files.read[index] + files.written[index]), files.names[index]


RULES = (
    Rule("path", lambda files, index: files.names[index]),
    *(Rule("end of path", partial(_end, depth)) for depth in range(_DEEPEST, 0, -1)),
    *(Rule("name without numbers", partial(_end_shape, depth), _by_number) for depth in (2, 1)),
    RawFileRule("recorded requests", lambda files, index: None, _by_bytes),
    Rule("use", _use, _by_bytes),
)


def shape(path: str) -> str:
    """A path with ``#`` in place of its numbers, and of names that Python's ``tempfile`` creates."""
    folder, slash, name = path.rpartition("/")
    return _NUMBERS.sub("#", folder) + slash + _NUMBERS.sub("#", _RANDOM.sub("tmp#", name))


"""All rules, in the order in which they apply."""

MAPPED_RULES = (*RULES[:-2], Rule("mapping", lambda files, index: None, _by_bytes))
"""Rules within a mapping of the user; a mapping pairs files of any use."""
