"""Patterns of paths: wildcards, and the braces of Bash in which lists of shards are written."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator

from dlio_torch.errors import DataError

_MOST = 1_000_000  # names that one pattern may stand for
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")


def matching(pattern: str) -> list[str]:
    """Paths that a pattern matches: ``*``, ``**``, ``?`` and ``[...]`` as by ``glob``, ``{000..009}`` and ``{a,b}``.

    Returns:
        Existing paths, sorted, each once; none: nothing matches.

    Raises:
        DataError: a name that braces give does not exist while others do, or there are too many.
    """
    names = list(itertools.islice(expanded(os.path.expanduser(pattern)), _MOST + 1))
    if len(names) > _MOST:
        raise DataError(f"{pattern} stands for more than {_MOST} names", hint="correct the numbers in braces")
    present: set[str] = set()
    missing = []
    for name in names:
        paths = glob.glob(name, recursive=True)
        present.update(paths)
        if not paths and not glob.has_magic(name):
            missing.append(name)
    if present and missing:
        raise DataError(
            f"{missing[0]} does not exist, one of {len(names)} names of {pattern}",
            hint="correct the numbers in braces, or use * for all files that are there",
        )
    return sorted(present)


def expanded(pattern: str) -> Iterator[str]:
    """Yields the names that the braces of a pattern give, as Bash expands them; other braces stay as they are.

    >>> list(expanded("{a,b}-{08..10}.tar"))
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']
    """
    for start in (place.start() for place in re.finditer(r"\{", pattern)):
        end, items = _brace(pattern, start)
        if end:
            for item in items:
                yield from (f"{pattern[:start]}{item}{rest}" for rest in expanded(pattern[end:]))
            return
    yield pattern


def _brace(pattern: str, start: int) -> tuple[int, Iterator[str]]:
    """End of the brace that opens at ``start``, and its items; end 0: it is plain text."""
    depth, begin, parts = 0, start + 1, []
    for place in range(start, len(pattern)):
        if pattern[place] == "{":
            depth += 1
        elif pattern[place] == "}":
            depth -= 1
        if (depth == 1 and pattern[place] == ",") or depth == 0:
            parts.append(pattern[begin:place])
            begin = place + 1
        if depth == 0:
            break
    if depth:
        return 0, iter(())
    if len(parts) > 1:
        return begin, itertools.chain.from_iterable(map(expanded, parts))
    bounds = _RANGE.fullmatch(parts[0])
    return (begin, _numbers(bounds)) if bounds else (0, iter(()))


def _numbers(bounds: re.Match[str]) -> Iterator[str]:
    """Numbers of a range; they have leading zeros if one of the bounds has."""
    first, last = int(bounds[1]), int(bounds[2])
    step = abs(int(bounds[3] or 1)) or 1
    padded = any(re.match(r"-?0\d", bound) for bound in bounds.groups()[:2])
    width = max(len(bounds[1]), len(bounds[2])) if padded else 0
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return (f"{value:0{width}d}" for value in values)
