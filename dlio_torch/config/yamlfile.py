"""Parses YAML text to nested dicts and lists of text, with the line of every value; writes values as YAML.

Scalars stay text: what ``off``, ``1e-3``, ``010`` or ``2024-01-01`` mean is decided by the type of
the option that receives them, not by YAML 1.1's guesses.  The only value with a meaning of its own is
null.  Nothing is constructed from tags, and aliases may not blow a small file up.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, field
from typing import Any

import yaml

from dlio_torch.errors import ConfigError

Tree = dict[str, Any]
"""Nested mappings; leaves are ``str``, ``None`` or lists of trees and leaves."""

Path = tuple[str, ...]
"""Keys from the root to a value; list elements are counted from ``"0"``."""

SCALES = "scales"
ACCELERATORS = "accelerators"
"""Keys of a recipe that contain named blocks of settings."""

MAX_CHARACTERS = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 24
_DEPTH_READ = 100  # of brackets, before it is known what they mean

_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}


@dataclass(frozen=True)
class Document:
    """A parsed YAML text.

    Attributes:
        tree: its content; an empty text gives an empty mapping.
        lines: line (from 1) of every mapping, list and scalar, by path.
        label: name of the text in messages, for example ``conf/dataset/hdf5.yaml``.
    """

    tree: Tree
    lines: dict[Path, int] = field(default_factory=dict)
    label: str = ""

    def location_of(self, path: Path) -> str:
        """Returns ``label:line`` of the value at ``path``, or of its nearest ancestor."""
        while path and path not in self.lines:
            path = path[:-1]
        line = self.lines.get(path)
        return self.label if line is None else f"{self.label}:{line}"


def parse_document(text: str, label: str) -> Document:
    """Parse the text of a whole YAML file.

    Raises:
        ConfigError: malformed YAML, a tag, a duplicate key, too large, or no mapping at the top.
    """
    value, lines = _parsed(text, label)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ConfigError(
            f"{label}: expected 'key: value' lines at the top level",
            hint="see `dlio_torch explain` for the options that a recipe can set",
        )
    return Document(copy.deepcopy(value), lines, label)


@functools.lru_cache(maxsize=32)
def _parsed(text: str, label: str) -> tuple[Any, dict[Path, int]]:
    """Calls :func:`_parse` with a cache: the points of a study are composed of the same few files hundreds of times."""
    return _parse(text, label)


def parse_value(text: str, label: str) -> Any:
    """Parse the value of one ``key=value`` argument where a list or mapping is expected."""
    return _parse(text, label)[0]


def dump_scalar(value: Any) -> str:
    """Writes ``value`` (a scalar or a list of scalars) as one line of YAML."""
    if isinstance(value, list):
        # An item is written as the only one of its list, where commas and brackets are quoted.
        return f"[{', '.join(_text(item, True)[1:-1] for item in value)}]"
    return _text(value, False)


def _text(item: Any, listed: bool) -> str:
    return _dump(item, listed) if isinstance(item, (dict, list)) else _dumped(repr(item), item, listed)


@functools.lru_cache(maxsize=4096)
def _dumped(_key: str, item: Any, listed: bool) -> str:
    """Writes ``item``; ``_key`` distinguishes equal values that are written differently, such as 1, 1.0 and true."""
    return _dump(item, listed)


def _dump(item: Any, listed: bool) -> str:
    # Escapes keep line ends and invisible characters on one line and as they are.
    plain = not isinstance(item, str) or (item.isascii() and item.isprintable())
    text: str = yaml.safe_dump(
        [item] if listed else item,
        default_flow_style=True,
        default_style=None if plain else '"',
        width=float("inf"),
        allow_unicode=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _parse(text: str, label: str) -> tuple[Any, dict[Path, int]]:
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"{label}: the file is larger than {MAX_CHARACTERS} characters",
            hint="name a recipe, which is a small text file",
        )
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{label}:{mark.line + 1}" if mark else label
        raise ConfigError(
            f"{location}: malformed YAML: {error.problem or error.context}", hint="check indentation, colons and quotes"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{label}: malformed YAML: {error}", hint="save the file as UTF-8 text") from None
    except (RecursionError, ValueError) as error:
        reason = "values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(
            f"{label}: malformed YAML: {reason}", hint="see `dlio_torch explain` for the options that a recipe can set"
        ) from None
    reader = _TreeReader(label)
    return (None if root is None else reader.read(root, ())), reader.lines


def _composed(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """A YAML loader that stops at text that is too large or too deeply nested for a configuration."""

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Composes one value and the values nested in it."""
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        if self.depth > _DEPTH_READ:
            raise ValueError("values are nested too deeply")
        if self.nodes > 2 * MAX_NODES:  # keys are nodes, too
            raise ValueError(f"more than {MAX_NODES} values")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _TreeReader:
    """Turns PyYAML's node graph into a tree; refuses tags, aliases and keys that no configuration needs."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: dict[Path, int] = {}
        self.nodes = 0

    def read(self, node: Any, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise self.error(
                node,
                "the file has too many or too deeply nested values",
                "remove the YAML aliases (*name), which multiply the values",
            )
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            if node.tag not in _SCALARS:
                raise self.error(
                    node, f"tag {_short(node.tag)!r} is not allowed", "remove the tag and write the plain value"
                )
            return None if node.tag == _TAG + "null" else node.value
        if node.tag not in (_TAG + "seq", _TAG + "map"):
            raise self.error(
                node, f"tag {_short(node.tag)!r} is not allowed", "remove the tag and write a plain list or mapping"
            )
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, str(i))) for i, child in enumerate(node.value)]
        tree: Tree = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _SCALARS:
                raise self.error(key, "a key must be a plain word", "write 'key: value'")
            if key.value in tree:
                raise self.error(key, f"key {key.value!r} appears twice", "remove one of the two lines")
            tree[key.value] = self.read(child, (*path, key.value))
            # The line of the key is what a reader looks for; a nested value starts one line later.
            here = (*path, key.value)
            self.lines[here] = key.start_mark.line + 1
        return tree

    def error(self, node: Any, problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{self.label}:{node.start_mark.line + 1}: {problem}", hint=hint)


def _short(tag: str) -> str:
    return tag.replace(_TAG, "!!")
