"""Lookup of options by dotted key: type, unit, choices, documentation, nearest names."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlio_torch.config.extensions import all_facts
from dlio_torch.config.opt import NO_FORMER
from dlio_torch.config.schema import Config

LONGEST_S = 1e9
"""Longest duration that an option takes, in seconds: 31 years, whose nanoseconds fit in an int64."""
LARGEST_B = 2.0**60
LARGEST = 1e15


@dataclass(frozen=True)
class Option:
    """One node of the schema.

    Attributes:
        path: keys from the root; elements of a list are digits in a real key and ``*`` in a pattern.
        kind: ``group``, ``list`` (of groups), ``values`` (list of scalars), ``choice``, or the name
            of a scalar type: ``int``, ``float``, ``bool``, ``str``.
        group: dataclass of a group, or of the elements of a list.
        element: kind of the elements of ``values``.
        choices: permitted words of a choice.
        optional: whether null is permitted.
        unit: ``B``, ``s`` or None.
        minimum: least permitted value, or None.
        maximum: greatest permitted value, or None.
        default: default value; a list or group instance for those.
        doc: one line of documentation.
        former: former name of the option in its group, and the successors of former values.
        is_file: whether it names a file, whose relative path in a YAML file starts at the folder of the YAML file.
    """

    path: tuple[str, ...]
    kind: str
    group: Any = None
    element: str = ""
    choices: tuple[str, ...] = ()
    optional: bool = False
    unit: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    default: Any = None
    doc: str = ""
    former: tuple[str, Mapping[str, str]] = NO_FORMER
    is_file: bool = False

    @property
    def key(self) -> str:
        """The dotted key of the option, for example ``loader.num_workers``."""
        return ".".join(self.path)

    @property
    def name(self) -> str:
        """The last part of the dotted key."""
        return self.path[-1] if self.path else ""

    @property
    def type_text(self) -> str:
        """The type of the option in words, for the verb ``explain``."""
        if self.kind == "choice":
            text = "one of " + ", ".join(self.choices)
        elif self.kind == "values":
            text = f"list of {self.element}"
        elif self.kind == "list":
            text = "list of groups"
        elif self.unit == "B":
            text = "size"
        elif self.unit == "s":
            text = "duration"
        else:
            text = self.kind
        return f"{text}, or null" if self.optional else text


ROOT = Option(path=(), kind="group", group=Config, doc="A complete experiment.")


@functools.cache
def _fields(cls: Any) -> dict[str, Option]:
    hints = typing.get_type_hints(cls)
    return {f.name: _describe(f, hints[f.name]) for f in dataclasses.fields(cls)}


def _describe(field: dataclasses.Field[Any], hint: Any) -> Option:
    meta = field.metadata
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        optional = True
        hint = arms[0]
    kind, group, element, choices = _kind(hint)
    return Option(
        path=(field.name,),
        kind=kind,
        group=group,
        element=element,
        choices=choices,
        optional=optional,
        unit=meta.get("unit"),
        minimum=meta.get("min"),
        maximum=_maximum(meta.get("max"), meta.get("unit"), kind, element),
        default=default,
        doc=meta.get("doc", ""),
        former=meta.get("former", NO_FORMER),
        is_file=meta.get("is_file", False),
    )


def _maximum(given: float | None, unit: str | None, kind: str, element: str) -> float | None:
    """Upper limit of a floating-point option, small enough that arithmetic on the value does not overflow."""
    if given is not None or "float" not in (kind, element):
        return given
    return {"s": LONGEST_S, "B": LARGEST_B}.get(unit or "", LARGEST)


def _kind(hint: Any) -> tuple[str, Any, str, tuple[str, ...]]:
    if dataclasses.is_dataclass(hint):
        return "group", hint, "", ()
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "choice", None, "", tuple(typing.get_args(hint))
    if origin is list:
        (inner,) = typing.get_args(hint)
        if dataclasses.is_dataclass(inner):
            return "list", inner, "", ()
        return "values", None, inner.__name__, ()
    return hint.__name__, None, "", ()


def children(option: Option) -> Mapping[str, Option]:
    """Returns the options of a group, or of one element of a list of groups, by name."""
    return {} if option.group is None else _children(option.group, option.path)


@functools.lru_cache(maxsize=4096)  # bounded, as the elements of lists are among the paths
def _children(group: Any, path: tuple[str, ...]) -> Mapping[str, Option]:
    return {name: dataclasses.replace(child, path=(*path, name)) for name, child in _fields(group).items()}


def element(option: Option, index: str) -> Option:
    """Returns the option that describes element ``index`` of a ``list`` or ``values`` option."""
    kind = "group" if option.kind == "list" else option.element
    return dataclasses.replace(option, path=(*option.path, index), kind=kind, optional=False)


def lookup(path: Sequence[str]) -> Option | None:
    """Returns the option at ``path``, or None; an element of a list is written as its index or ``*``."""
    option = ROOT
    for part in path:
        if option.kind in ("list", "values"):
            # isdecimal() accepts digits of all scripts, which no list index is written in.
            if not (part == "*" or (part.isascii() and part.isdecimal() and len(part) < 10)):
                return None
            option = element(option, part)
        else:
            child = children(option).get(part) if option.kind == "group" else None
            if child is None:
                return None
            option = child
    return option


def groups() -> tuple[str, ...]:
    """Returns the names of the top-level groups, which are folders of ``conf/`` and prefixes of keys."""
    return tuple(name for name, option in children(ROOT).items() if option.kind == "group")


def walk(option: Option = ROOT) -> Iterator[Option]:
    """Yields all options below ``option``, including groups and lists; an element of a list is written ``*``."""
    inside = element(option, "*") if option.kind == "list" else option
    for child in children(inside).values():
        yield child
        yield from walk(child)


def leaves(value: Any, option: Option = ROOT) -> Iterator[tuple[Option, Any]]:
    """Yields every option that has a value, with the value; an empty list of groups counts as a value."""
    if option.kind == "group":
        for name, child in children(option).items():
            yield from leaves(getattr(value, name), child)
    elif option.kind == "list" and value:
        for i, item in enumerate(value):
            yield from leaves(item, element(option, str(i)))
    else:
        yield option, value


def nearest(word: str, known: Sequence[str], limit: int = 1, cutoff: float = 0.6) -> list[str]:
    """Returns the names most similar to ``word``, ignoring case."""
    folded = {name.lower(): name for name in reversed(known)}
    return [folded[low] for low in difflib.get_close_matches(word.lower(), list(folded), n=limit, cutoff=cutoff)]


def _successor(path: tuple[str, ...]) -> str:
    """Text that names the option that replaces the one at ``path``; empty if none does."""
    former = [
        (facts.key(old), facts.key(new), values) for facts in all_facts() for old, (new, values) in facts.former.items()
    ]
    group = lookup(path[:-1])
    former += [
        (".".join(path), option.key, option.former[1])
        for option in (children(group).values() if group is not None and group.kind == "group" else ())
        if option.former[0] == path[-1]
    ]
    for old, new, values in former:
        if old == ".".join(path):
            changed = ", ".join(f"{value} for {before}" for before, value in values.items())
            return f"it is now {new}" + (f" ({changed})" if changed else "")
    return ""


def suggest(path: Sequence[str]) -> str:
    """Returns the hint for an unknown key: the option that replaces it, or the most similar valid keys."""
    successor = _successor(tuple(path))
    if successor:
        return successor
    prefix = tuple(path)
    while prefix and lookup(prefix) is None:
        prefix = prefix[:-1]
    wrong = path[len(prefix)] if len(prefix) < len(path) else ""
    here = lookup(prefix)
    if here is not None and prefix:
        close = nearest(wrong, list(children(here)))
        if here.kind == "group" and close:
            return f"did you mean {'.'.join((*prefix, close[0]))}?"
        if here.kind in ("list", "values"):
            return f"{here.key} is a list: write {here.key}.0 for its first element"
        if here.kind != "group":
            return f"{here.key} is a single option, not a group: write {here.key}=<value>"
    known = [option.key for option in walk()]
    last = path[-1] if path else ""
    close = nearest(".".join(path), known, cutoff=0.85)
    if close:
        return f"did you mean {close[0]}?"
    # The same word in another group beats a word of similar spelling.
    same = [key for key in known if key.split(".")[-1] == last]
    if same:
        return f"did you mean {' or '.join(same[:3])}?"
    words: dict[str, list[str]] = {}
    for key in known:
        words.setdefault(key.split(".")[-1], []).append(key)
    close = nearest(".".join(path), known)
    if close:
        return f"did you mean {close[0]}?"
    close = nearest(last, list(words))
    if close:
        return f"did you mean {' or '.join(words[close[0]][:3])}?"
    if prefix:
        return f"`dlio_torch explain {'.'.join(prefix)}` lists the options of this group"
    return f"groups are {', '.join(groups())}; `dlio_torch explain` lists all options"
