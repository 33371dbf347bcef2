"""The rule on sources of numbers, as recipes/minimal.yaml states it, applied to the text of a recipe."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from dlio_torch.units import parse_duration, parse_size_float

EXEMPT = ("scales", "expect")
"""Keys of a recipe without sources in comments: amounts of our own choice, and rows with a source of their own."""

_DEFAULT = re.compile(r"#\s*Default source:\s*(.*)")
_DEFINED = re.compile(r"#\s+\[(\w+)\]\s+\S")
# Not the brackets of code, of a list or of an example: f['data'][a:b], chunks=[], [64, 64], `[paper]`.
_CITED = re.compile(r"(?<![\w\]'\"=`])\[([A-Za-z][^\[\]]*)\]")
_OWN = re.compile(r"\((?:inferred|chosen)\b([^()]*)\)")
_WORD = re.compile(r"\w{2,}")


@dataclass(frozen=True)
class Finding:
    """A breach of the rule: its line (from 1), the dotted key, and what is wrong."""

    line: int
    key: str
    problem: str


@dataclass(frozen=True)
class Number:
    """A number of a YAML text: its dotted key, its value as written, its line, and those of the keys around it."""

    key: str
    value: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """The comment that a file opens with: the tags that its ``Sources:`` define, the default source, its last line."""

    tags: frozenset[str]
    default: str
    end: int


def breaches(text: str) -> list[Finding]:
    """What breaks the rule in ``text``, in the order of lines."""
    head, notes = header(text), comments(text)
    found = [
        Finding(line, "", f"[{tag}] is not among the sources of the header")
        for line, (note, _) in notes.items()
        for tag in cited(note)
        if tag not in head.tags
    ]
    found += [
        Finding(line, "", f"{own[0]} does not say from what or why")
        for line, note in whole(notes).items()
        if (own := _OWN.search(note)) and not has_reason(note)
    ]
    # The list of sources is the source of nothing, not even of the key that follows it at once.
    below = {line: note for line, note in notes.items() if line > head.end}
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    tree = yaml.safe_load(text)
    for number in numbers(root):
        top, _, name = number.key.partition(".")
        if top in EXEMPT or (not name and top in (tree.get("guessed") or [])):
            continue
        places = [place for line in number.lines for place in beside(line, below)]
        if not any(is_source(place, head.tags) for place in [*places, head.default]):
            found.append(Finding(number.lines[0], number.key, f"{number.value} has no source"))
    for index, row in enumerate(tree.get("expect") or []):
        tag = re.match(r"\[(\w+)[^\]]*\]", str(row.get("source", "")))
        if tag is None or tag[1] not in head.tags:
            line = text[: text.index("\nexpect:") + 1].count("\n") + 1
            found.append(Finding(line, f"expect.{index}.source", "does not begin with a source of the header"))
    return sorted(found, key=lambda finding: finding.line)


def header(text: str) -> Header:
    """What the comment at the top of ``text`` defines."""
    tags, default, listing = set(), "", False
    lines = list(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
    for line in lines:
        if line == "# Sources:":
            listing = True
        elif listing and (tag := _DEFINED.match(line)):
            tags.add(tag[1])
        elif line == "#":
            listing = False
        elif stated := _DEFAULT.match(line):
            default = stated[1]
    return Header(frozenset(tags), default, len(lines))


def comments(text: str) -> dict[int, tuple[str, bool]]:
    """Line -> its comment, and whether the line holds nothing else."""
    inside = [
        (token.start_mark.index, token.end_mark.index)
        for token in yaml.scan(text, Loader=yaml.SafeLoader)
        if isinstance(token, yaml.ScalarToken)
    ]
    found: dict[int, tuple[str, bool]] = {}
    start = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        for sign in re.finditer(r"(?:^|(?<=\s))#", line):
            at = start + sign.start()
            if not any(first <= at < end for first, end in inside):
                found[number] = (line[sign.end() :].strip(), not line[: sign.start()].strip())
                break
        start += len(line)
    return found


def numbers(node: yaml.Node, key: str = "", around: tuple[int, ...] = ()) -> Iterator[Number]:
    """The numbers of ``node``: integers, fractions, sizes and durations, wherever they stand."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            path = f"{key}.{name.value}" if key else name.value
            yield from numbers(value, path, _with(name.start_mark.line + 1, around))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from numbers(item, f"{key}.{index}", _with(item.start_mark.line + 1, around))
    elif is_number(node):
        yield Number(key, node.value, _with(node.start_mark.line + 1, around))


def _with(line: int, around: tuple[int, ...]) -> tuple[int, ...]:
    return around if around[:1] == (line,) else (line, *around)


def is_number(node: yaml.Node) -> bool:
    """Whether a scalar is a number, with or without a unit."""
    if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
        return True
    for parse in (parse_size_float, parse_duration):
        try:
            parse(node.value)
        except ValueError:
            continue
        return True
    return False


def whole(notes: dict[int, tuple[str, bool]]) -> dict[int, str]:
    """Last line -> comment, where the comments of lines that hold nothing else are one."""
    return {
        line: beside(line + 1, notes)[-1] if alone else note
        for line, (note, alone) in notes.items()
        if not (alone and notes.get(line + 1, ("", False))[1])
    }


def beside(line: int, notes: dict[int, tuple[str, bool]]) -> list[str]:
    """The comment on ``line``, and the one on the lines directly above it."""
    above: list[str] = []
    while line - 1 - len(above) in notes and notes[line - 1 - len(above)][1]:
        above.append(notes[line - 1 - len(above)][0])
    return [*([notes[line][0]] if line in notes else []), " ".join(reversed(above))]


def cited(note: str) -> list[str]:
    """Tags that a comment cites: ``[paper; vanidl: 8 ranks]`` cites ``paper`` and ``vanidl``."""
    return [
        match[0] if (match := re.match(r"\w+", part.strip())) else part.strip()
        for group in _CITED.findall(note)
        for part in group.split(";")
    ]


def is_source(note: str, tags: frozenset[str]) -> bool:
    """Whether ``note`` cites a source of the header, or says that a number is inferred or chosen, and why."""
    if any(tag in tags for tag in cited(note)):
        return True
    return _OWN.search(note) is not None and has_reason(note)


def has_reason(note: str) -> bool:
    """Whether ``note`` has words beside its marks and citations."""
    return len(_WORD.findall(_OWN.sub(r" \1 ", _CITED.sub(" ", note)))) >= 2
