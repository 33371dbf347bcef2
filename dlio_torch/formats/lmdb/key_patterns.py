"""Patterns of keys: which keys are those of samples, and how they are made of a number."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_NUMBERED = re.compile(rb"(?P<prefix>[^0-9]*)(?P<number>[0-9]+)(?P<suffix>[^0-9]*)")
_LONGEST_NUMBER = 18
_BOOKKEEPING = frozenset([b"__len__", b"__keys__", b"__meta__", b"num-samples", b"length", b"len", b"keys", b"meta"])
_FIRSTS = (0, 1)  # of the first sample, in keys without leading zeros


@dataclass(frozen=True)
class KeyPattern:
    """How the keys of samples are made.

    Attributes:
        key: value of ``dataset.lmdb.key``; empty: by no pattern, so that all keys are listed.
        fields: names of the arrays of a sample, with the key of the first sample of each.
        first_index: number of the first sample.
        others: keys that are no samples.
    """

    key: str
    fields: dict[str, bytes]
    first_index: int
    others: tuple[bytes, ...]


def pattern_of(keys: Sequence[bytes], entries: int, has: Callable[[bytes], bool]) -> KeyPattern | None:
    """Recognises the keys of an environment.

    Args:
        keys: the first ones of the tree, and the last one.
        entries: number of all entries.
        has: whether there is an entry with this key.

    Returns:
        ``None`` if there are no samples.
    """
    others = tuple(sorted(key for key in _BOOKKEEPING if has(key)))
    samples = [key for key in keys if key not in others]
    if not samples:
        return None
    numbered = _numbered(samples, entries - len(others), has, others)
    return numbered or KeyPattern("", {"data": samples[0]}, 0, others)


def _numbered(
    samples: Sequence[bytes], entries: int, has: Callable[[bytes], bool], others: tuple[bytes, ...]
) -> KeyPattern | None:
    """The pattern, if each key is a number between two texts, and the numbers of each text are the same."""
    groups: dict[tuple[bytes, bytes], list[bytes]] = defaultdict(list)
    for key in samples:
        match = _NUMBERED.fullmatch(key)
        if match is None or len(match["number"]) > _LONGEST_NUMBER:
            return None
        groups[match["prefix"], match["suffix"]].append(match["number"])
    _other_groups(groups, has)
    count, rest = divmod(entries, len(groups))
    if rest or not all(_decodable(*texts) for texts in groups):
        return None
    widths = {len(number) for numbers in groups.values() for number in numbers}
    first = min(int(number) for numbers in groups.values() for number in numbers)
    padded = len(widths) == 1 and (count == 1 or len(str(first + count - 1)) <= min(widths))
    width = min(widths) if padded else 0
    if not padded and first not in _FIRSTS:
        return None
    for prefix, suffix in groups:
        for number in {first, first + count // 2, first + count - 1}:
            if not has(prefix + f"{number:0{width}d}".encode() + suffix):
                return None
    index = f"{{index:0{width}d}}" if width > 1 else "{index}"
    if len(groups) == 1:
        prefix, suffix = next(iter(groups))
        pattern = _escaped(prefix) + index + _escaped(suffix)
        return KeyPattern(pattern, {"data": prefix + f"{first:0{width}d}".encode() + suffix}, first, others)
    return _of_fields(list(groups), index, first, width, others)


def _of_fields(
    groups: Sequence[tuple[bytes, bytes]], index: str, first: int, width: int, others: tuple[bytes, ...]
) -> KeyPattern | None:
    """The pattern of keys that begin or end with the name of a field."""
    for place, template in ((0, "{field}{separator}{index}{rest}"), (1, "{rest}{index}{separator}{field}")):
        rests = {texts[1 - place] for texts in groups}
        words = [texts[place] for texts in groups]
        names = [word.strip(b"-_./: ") for word in words]
        if len(rests) > 1 or not all(names) or len(set(names)) < len(names):
            continue
        separators = {word.replace(name, b"", 1) for word, name in zip(words, names, strict=True)}
        joined = {name + next(iter(separators)) if place == 0 else next(iter(separators)) + name for name in names}
        if len(separators) > 1 or joined != set(words):
            continue
        key = template.format(
            field="{field}", separator=_escaped(separators.pop()), index=index, rest=_escaped(rests.pop())
        )
        number = f"{first:0{width}d}".encode()
        fields = {name.decode(): texts[0] + number + texts[1] for name, texts in zip(names, groups, strict=True)}
        return KeyPattern(key, fields, first, others)
    return None


def _other_groups(groups: dict[tuple[bytes, bytes], list[bytes]], has: Callable[[bytes], bool]) -> None:
    """Adds groups of which the keys lie behind those that were looked at: words that go with the others'."""
    (prefix, suffix), numbers = next(iter(groups.items()))
    word = prefix.strip(b"-_./: ")
    if len(groups) > 1 or not word:
        return
    for other in (b"label", b"mask", b"target", b"class"):
        texts = prefix.replace(word, other, 1), suffix
        if texts not in groups and has(texts[0] + numbers[0] + suffix):
            groups[texts].append(numbers[0])


def _decodable(prefix: bytes, suffix: bytes) -> bool:
    return (prefix + suffix).isascii()


def _escaped(text: bytes) -> str:
    return text.decode("ascii").replace("{", "{{").replace("}", "}}")
