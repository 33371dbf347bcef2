"""The rules by which files of two sides are paired, see :mod:`dlio_torch.analysis.fidelity.pairing`."""

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

PROGRAM = re.compile(
    r"^/(proc|sys|dev(?!/shm/)|etc|usr|boot|s?bin|lib(64)?)/"
    r"|/(site-packages|dist-packages|__pycache__)/"
    r"|\.(py|pyc|pyo|pyi|pyd|pth|egg-link)$"
    r"|\.so(\.\d+)*$"
    r"|^(<.*>|\w*:\[.*\])$"
)
"""Files of the program and of the system, which are no data: sources see very different ones of them."""

# Numbers, but for the one of a suffix such as .h5, .hdf5 or .mp4.
_NUMBERS = re.compile(r"\d+(?!\d|$)|(?<!\d)(?<!\.[a-z])(?<!\.[a-z]{2})(?<!\.[a-z]{3})\d+$")
_RANDOM = re.compile(r"^tmp[a-z0-9_]{6,10}(?=\.|$)")
_DEEPEST = 12


@dataclass(frozen=True)
class Files:
    """The files of one side.

    Args:
        names: their paths.
        read: bytes read from each.
        written: bytes written to each.
    """

    names: tuple[str, ...]
    read: Ints
    written: Ints


def is_program(path: str) -> bool:
    """Whether a file belongs to the program or the system, see :data:`PROGRAM`."""
    return PROGRAM.search(path) is not None


@dataclass(frozen=True)
class Rule:
    """Files whose ``key`` is equal are partners.

    Args:
        name: what the rule is called.
        key: of one file.
        order: pairs the files of one key in this order; None: only a key that either side has once counts.
    """

    name: str
    key: Callable[[Files, int], Hashable]
    order: Callable[[Files, int], Any] | None = None

    def find(self, a: Files, left: list[int], b: Files, right: list[int]) -> list[tuple[int, int]]:
        """Pairs of files ``left`` of A and ``right`` of B, by their places."""
        groups_a, groups_b = self._groups(a, left), self._groups(b, right)
        found: list[tuple[int, int]] = []
        for key, of_a in groups_a.items():
            of_b = groups_b.get(key, [])
            if self.order is not None or len(of_a) == len(of_b) == 1:
                found += zip(of_a, of_b, strict=False)
        return found

    def _groups(self, files: Files, members: list[int]) -> dict[Hashable, list[int]]:
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for one in members:
            groups[self.key(files, one)].append(one)
        if self.order is not None:
            for group in groups.values():
                group.sort(key=partial(self.order, files))
        return groups


def _end(depth: int, files: Files, one: int) -> str:
    """The last ``depth`` parts of a path."""
    return "/".join(files.names[one].rsplit("/", depth)[-depth:])


def _end_shape(depth: int, files: Files, one: int) -> str:
    return shape(_end(depth, files, one))


def _use(files: Files, one: int) -> tuple[str, bool, bool]:
    return PurePosixPath(files.names[one]).suffix, bool(files.read[one]), bool(files.written[one])


def _by_number(files: Files, one: int) -> list[tuple[int, str]]:
    """Sorts ``img_9`` before ``img_10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", files.names[one])]


def _by_bytes(files: Files, one: int) -> tuple[int, str]:
    return -int(files.read[one] + files.written[one]), files.names[one]


RULES = (
    Rule("path", lambda files, one: files.names[one]),
    *(Rule("end of path", partial(_end, depth)) for depth in range(_DEEPEST, 0, -1)),
    *(Rule("name but numbers", partial(_end_shape, depth), _by_number) for depth in (2, 1)),
    Rule("use", _use, _by_bytes),
)


def shape(path: str) -> str:
    """A path with ``#`` for its numbers, and for names that Python's ``tempfile`` makes."""
    folder, slash, name = path.rpartition("/")
    return _NUMBERS.sub("#", folder) + slash + _NUMBERS.sub("#", _RANDOM.sub("tmp#", name))


"""The rules in their order."""

MAPPED_RULES = (*RULES[:-1], Rule("mapping", lambda files, one: None, _by_bytes))
"""The rules within a mapping of the user, which pairs files of any use."""
