"""Layers of settings, merged in order by OmegaConf, with the source of each value."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dlio_torch.config.convert import Unfit, as_text, convert
from dlio_torch.config.fields import ROOT, Option, children, element, lookup, suggest
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import Path, Tree, parse_value
from dlio_torch.errors import ConfigError

COMMAND_LINE = "command line"

SourceOf = Callable[[Path], str]
"""Maps a path in a layer to the source of its value, for example file and line."""


def _defaults() -> DictConfig:
    """Returns a new copy of the schema's default settings."""
    settings: DictConfig = pickle.loads(_pickled_defaults())
    return settings


@functools.cache
def _pickled_defaults() -> bytes:
    """Returns the pickled default settings; loading a pickle takes a tenth of the time of building the settings."""
    return pickle.dumps(OmegaConf.create(as_text(_tree(Config(), ROOT))))


def _tree(value: Any, option: Option) -> Any:
    if option.kind == "group":
        return {name: _tree(getattr(value, name), child) for name, child in children(option).items()}
    if option.kind == "list":
        return [_tree(item, element(option, str(i))) for i, item in enumerate(value)]
    return value


@dataclass
class Stack:
    """Merges layers of settings; a later layer overrides an earlier one.  Lists are replaced whole, groups key by key.

    Attributes:
        settings: merged values, all of them text, null, lists and groups.
        sources: where each leaf that some layer set was set, by dotted key.
    """

    settings: DictConfig = field(default_factory=_defaults)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, tree: Tree, source_of: SourceOf, *, prefix: Path = (), literal: bool = False) -> None:
        """Merge the settings ``tree`` into the group ``prefix``.

        Args:
            tree: settings of a file or a part of it.
            source_of: gives the source of the value at a path inside ``tree``.
            prefix: group that ``tree`` belongs to; empty: the root.
            literal: take ``${...}`` as text, not as a reference to another key.

        Raises:
            ConfigError: an unknown key, or a group where a value is expected and the reverse.
        """
        option = lookup(prefix)
        if option is None:
            raise ConfigError(f"{'.'.join(prefix)} ({source_of(())}): unknown group", hint=suggest(prefix))
        self._check(tree, option, (), source_of)
        group = self.settings
        for name in prefix:
            group = group[name]
        with _readable(prefix, tree, source_of(())):
            # In place: nobody holds the settings of before, and a copy of all options costs more than the merge.
            OmegaConf.unsafe_merge(group, _escape(tree) if literal else tree)
        for path in _demanded(tree):  # merge() passes over values that must be given
            OmegaConf.update(self.settings, ".".join((*prefix, *path)), "???")

    def set(self, key: str, text: str) -> None:
        """Set one dotted key to the text of a ``key=value`` argument.

        Raises:
            ConfigError: an unknown key, an index beyond the list, or text that is no YAML where a list
                or group is expected.
        """
        path = tuple(key.split("."))
        option = lookup(path)
        if option is None or "*" in path or not path[0]:
            raise unknown(path, text, COMMAND_LINE)
        path = tuple(str(int(part)) if part.isdecimal() else part for part in path)
        self._check_index(path, text)
        value: Any = text
        if option.kind in ("group", "list", "values"):
            value = None if text == "" else parse_value(text, f"{key}={text} ({COMMAND_LINE})")
            if option.kind == "group" and not isinstance(value, dict):
                raise ConfigError(
                    f"{key}={text} ({COMMAND_LINE}): {key} is a group of options, which has no value itself",
                    hint=f"write {key}.<option>=...; `dlio_torch explain {key}` lists them",
                )
        elif option.optional and text in ("null", ""):
            value = None
        self._check(value, lookup(path) or option, (), lambda _: COMMAND_LINE)
        with _readable(path, text, COMMAND_LINE):
            OmegaConf.update(self.settings, ".".join(path), value, merge=option.kind == "group")

    def build(self) -> Config:
        """The typed configuration, with references to other keys resolved.

        Raises:
            ConfigError: a value that does not fit its option, or a reference that leads nowhere.
        """
        try:
            tree = OmegaConf.to_container(self.settings, resolve=True, throw_on_missing=True)
        except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
            raise self._unresolved(error) from None
        try:
            config: Config = convert(tree, ROOT)
        except Unfit as error:
            key = error.option.key
            raise ConfigError(
                f"{key}={show(error.value)} ({self.source(key)}): {error.problem}", hint=error.hint
            ) from None
        return config

    def source(self, key: str) -> str:
        """Source of the value of ``key``, or ``default``; an element of a list has the source of the list."""
        path = key.split(".")
        while path:
            source = self.sources.get(".".join(path))
            if source is not None:
                return source
            path.pop()
            option = lookup(path)
            if option is None or option.kind != "values":
                break
        return "default"

    def text(self, key: str) -> str:
        """The present value of ``key`` as a message shows it."""
        node: Any = OmegaConf.to_container(self.settings, resolve=False)
        for part in key.split("."):
            if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, dict):
                node = node.get(part)
        return show(node)

    def _check(self, value: Any, option: Option, path: Path, source_of: SourceOf) -> None:
        """Refuse unknown keys and misplaced groups; note the source of every leaf."""
        if option.kind == "group" and isinstance(value, dict):
            known = children(option)
            for name, item in value.items():
                child = known.get(name)
                if child is None:
                    raise unknown((*option.path, name), item, source_of((*path, name)))
                if child.kind == "group" and item is None:
                    value[name] = {}  # a group whose lines are all commented out
                else:
                    self._check(item, child, (*path, name), source_of)
        elif option.kind == "group":
            raise ConfigError(
                f"{option.key}={show(value)} ({source_of(path)}): {option.key} is a group of options, which has "
                "no value itself",
                hint=f"write '{option.path[-1]}:' and indent its options below; to choose a fragment of conf/, add '- "
                f"{option.path[-1]}: {show(value)}' to the 'defaults:' list",
            )
        elif option.kind == "list" and isinstance(value, list) and value:
            self._forget(option.key)
            for i, item in enumerate(value):
                self._check(item, element(option, str(i)), (*path, str(i)), source_of)
        elif isinstance(value, dict):
            raise ConfigError(
                f"{option.key}={show(value)} ({source_of(path)}): {option.key} is a single option, not a group "
                "of options",
                hint=f"write {option.key}: <{option.type_text}>",
            )
        else:
            self._forget(option.key)
            parent = lookup(option.path[:-1])
            # One element of a list of scalars has no source of its own: the list is the leaf.
            leaf = option.path[:-1] if parent is not None and parent.kind == "values" else option.path
            self.sources[".".join(leaf)] = source_of(path)

    def _forget(self, key: str) -> None:
        for old in [known for known in self.sources if known == key or known.startswith(f"{key}.")]:
            del self.sources[old]

    def _check_index(self, path: Path, text: str) -> None:
        node: Any = self.settings
        for i, part in enumerate(path):
            here = lookup(path[:i])
            if here is not None and here.kind in ("list", "values"):
                count = len(node) if OmegaConf.is_list(node) else 0
                if int(part) >= count:
                    has = f"{here.key} has {count} element{'' if count == 1 else 's'}"
                    raise ConfigError(
                        f"{'.'.join(path)}={show(text)} ({COMMAND_LINE}): {has}",
                        hint=f"the last one is {here.key}.{count - 1}"
                        if count
                        else f"set the whole list: {here.key}=[...]",
                    )
            if not OmegaConf.is_config(node):
                return
            index: Any = int(part) if OmegaConf.is_list(node) else part
            try:
                node = node[index] if OmegaConf.is_list(node) or index in node else None
            except OmegaConfBaseException:  # a reference that leads nowhere; build() reports it
                return

    def _unresolved(self, error: BaseException) -> ConfigError:
        key = re.sub(r"\[(\d+)\]", r".\1", str(getattr(error, "full_key", None) or "configuration"))
        reason = str(getattr(error, "msg", None) or error).split("\n")[0] or type(error).__name__
        text = self.text(key)
        if text == "???":
            return ConfigError(f"{key}=??? ({self.source(key)}): must be given", hint=f"add {key}=<value>")
        return ConfigError(
            f"{key}={text} ({self.source(key)}): {reason}",
            hint="a reference is written ${group.option}; write \\${ for a literal ${",
        )


class _readable:
    """Turns errors of OmegaConf (mostly bad ``${...}`` syntax) into one line."""

    def __init__(self, path: Path, value: Any, source: str) -> None:
        self.setting = f"{'.'.join(path) + '=' + show(value) if path else show(value)} ({source})"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OmegaConfBaseException, ValueError, TypeError, RecursionError)):
            reason = str(error).split("\n")[0] or type(error).__name__
            raise ConfigError(
                f"{self.setting}: {reason}", hint="a reference is written ${group.option}; write \\${ for a literal ${"
            ) from None


def unknown(path: Path, value: Any, source: str) -> ConfigError:
    """The error for a key that no option has."""
    return ConfigError(f"{'.'.join(path)}={show(value)} ({source}): unknown option", hint=suggest(path))


def show(value: Any) -> str:
    """A value in a message: short, on one line."""
    if isinstance(value, (dict, list)):
        text = "{...}" if isinstance(value, dict) else f"[{', '.join(show(item) for item in value[:4])}]"
    else:
        text = "null" if value is None else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _demanded(tree: Tree) -> Iterator[Path]:
    """Keys whose value is ``???``: the user must give one."""
    for name, value in tree.items():
        if value == "???":
            yield (name,)
        elif isinstance(value, dict):
            for path in _demanded(value):
                yield (name, *path)


def _escape(value: Any) -> Any:
    """``value`` with OmegaConf's syntax switched off in every text."""
    if isinstance(value, dict):
        return {name: _escape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value
