"""Recommended settings as arguments, as YAML, and as calls for the user's own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlio_torch.config.emit import as_dict
from dlio_torch.config.fields import leaves, lookup
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import dump_scalar
from dlio_torch.study.resolve import Resolved
from dlio_torch.study.strategies.search.loader_calls import data_calls, loader_call
from dlio_torch.units import exact_size


@dataclass(frozen=True)
class CopyBlocks:
    """A setting in all forms for copying.

    Attributes:
        settings: keys that differ from the default, and their values as on the command line.
        blocks: title and text of each form.
    """

    settings: tuple[tuple[str, str], ...]
    blocks: tuple[tuple[str, str], ...]

    @property
    def dotlist(self) -> str:
        """The arguments in one line, quoted where a shell needs it."""
        return " ".join(_quoted(f"{key}={value}") for key, value in self.settings)


def copy_blocks(default: Resolved, chosen: Resolved, searched: tuple[str, ...]) -> CopyBlocks:
    """Settings that turn ``default`` into ``chosen``, in every form.

    Args:
        default: the experiment as configured.
        chosen: one of its points.
        searched: keys of the axes; they decide which calls are shown.
    """
    settings = differences(default.composed.config, chosen.composed.config)
    config = chosen.composed.config
    blocks = [("command line", CopyBlocks(settings, ()).dotlist), ("YAML", _yaml(dict(settings)))] if settings else []
    blocks.append(loader_call(config, chosen.point.ranks))
    blocks += data_calls(config, searched)
    return CopyBlocks(settings, tuple(blocks))


def differences(before: Config, after: Config) -> tuple[tuple[str, str], ...]:
    """Keys whose values differ, with the new value as text; a list that changed its length as a whole."""
    old = {option.key: value for option, value in leaves(before)}
    result: dict[str, str] = {}
    for option, value in leaves(after):
        if option.key in old and old[option.key] == value:
            continue
        if option.key in old:
            result[option.key] = _text(option.key, value)
        else:
            key, item = _list_of(option.key, as_dict(after))
            result[key] = _flow(item)
    return tuple(result.items())


def _list_of(key: str, tree: Any) -> tuple[str, Any]:
    """The outermost list on the way to ``key``, and its content."""
    path: list[str] = []
    for part in key.split("."):
        if isinstance(tree, list):
            break
        path.append(part)
        tree = tree[part]
    return ".".join(path), tree


def _text(key: str, value: Any) -> str:
    option = lookup(key.split("."))
    if option is not None and option.unit == "B" and isinstance(value, int):
        return exact_size(value)
    return dump_scalar(value)


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return dump_scalar([value])[1:-1]


def _yaml(settings: Mapping[str, str]) -> str:
    """The settings as a part of a recipe; elements of lists, which a recipe replaces as a whole, as comments."""
    tree: dict[str, Any] = {}
    comments = []
    for key, value in settings.items():
        parts = key.split(".")
        if any(part.isdecimal() for part in parts):
            comments.append(f"# {key}: {value}")
            continue
        node = tree
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = value
    return "\n".join([*_lines(tree, 0), *comments])


def _lines(tree: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{'  ' * depth}{key}:"
            yield from _lines(value, depth + 1)
        else:
            yield f"{'  ' * depth}{key}: {value}"


def _quoted(argument: str) -> str:
    plain = all(character.isalnum() or character in "=._-/:%+," for character in argument)
    return argument if plain else f"'{argument}'"
