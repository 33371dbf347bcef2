"""Reads a workload file key by key, with a report on each key."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dlio_torch.config.fields import nearest
from dlio_torch.config.layers import show
from dlio_torch.config.yamlfile import Document, Path
from dlio_torch.errors import ConfigError
from dlio_torch.interop.dlio.dlio_keys import KNOWN, reason_of
from dlio_torch.interop.dlio.workload_values import UnusedKey, Value

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]{0,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_LARGEST = 2**63 - 1


class WorkloadFile:
    """The content of a workload file.

    Each ``take``-like method looks for the names that a key has had, newest first, and notes which of the
    file's keys have been used.  A value of null counts as not given, as it does for DLIO.

    Args:
        document: the parsed file; its settings may lie below ``workload:``, as in a run's ``.hydra/config.yaml``.

    Raises:
        ConfigError: a section that is no mapping.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        inside = document.tree.get("workload")
        self._root: Path = ("workload",) if isinstance(inside, dict) else ()
        self.tree: dict[str, Any] = inside if isinstance(inside, dict) else document.tree
        # An old name of the section, which DLIO still reads, and prefers.
        self._reader = "data_reader" if "data_reader" in self.tree else "reader"
        if self._reader != "reader":
            self.tree = {"reader" if key == self._reader else key: value for key, value in self.tree.items()}
        for section in sorted({key.partition(".")[0] for key in KNOWN}):
            value = self.tree.get(section)
            if value is not None and not isinstance(value, dict) and section not in ("model", "framework"):
                raise ConfigError(
                    f"{section}={show(value)} ({self.location(section)}): expected a group of keys",
                    hint=f"write '{section}:' and the keys of the group below it",
                )
        self._taken: set[str] = set()
        self._notes: dict[str, str] = {}

    def take(self, *keys: str) -> Value[Any] | None:
        """The raw value of the first of ``keys`` that the file contains; None if it contains none.

        A reference ``${...}`` is replaced by what it refers to; a key whose reference leads out of the file
        counts as not given and is noted.
        """
        entry: Value[Any] | None = None
        for key in keys:
            value, there = self._find(key)
            if not there:
                continue
            self._taken.add(key)
            if entry is not None:
                self.note(key, f"{entry.origin} is given too and takes precedence")
                continue
            if isinstance(value, str) and "${" in value:
                resolved = self._resolve(value)
                if resolved is None:
                    self.note(key, "the value refers to a key that is not in this file")
                    continue
                value = resolved
            if value is not None:
                entry = Value(value, key)
        return entry

    def number(self, *keys: str, default: float = 0.0, minimum: float = 0.0) -> Value[float]:
        """A finite number of at least ``minimum``."""
        entry = self.take(*keys)
        if entry is None:
            return Value(default, _defaults(keys[0]), given=False)
        return Value(self._number(entry.value, entry.origin, minimum), entry.origin)

    def integer(self, *keys: str, default: int = 0, minimum: int = 0) -> Value[int]:
        """A whole number of at least ``minimum``."""
        entry = self.number(*keys, default=default, minimum=minimum)
        if entry.value != math.floor(entry.value):
            raise self.wrong(entry.origin, entry.value, "expected a whole number", "write a whole number")
        return Value(int(entry.value), entry.origin, entry.given)

    def flag(self, *keys: str, default: bool = False) -> Value[bool]:
        """True or false."""
        entry = self.take(*keys)
        if entry is None:
            return Value(default, _defaults(keys[0]), given=False)
        word = entry.value.lower() if isinstance(entry.value, str) else ""
        if word not in _BOOLEANS:
            raise self.wrong(entry.origin, entry.value, "expected True or False", "write True or False")
        return Value(_BOOLEANS[word], entry.origin)

    def text(self, *keys: str, default: str = "") -> Value[str]:
        """A text of one line."""
        entry = self.take(*keys)
        if entry is None:
            return Value(default, _defaults(keys[0]), given=False)
        if not isinstance(entry.value, str):
            raise self.wrong(entry.origin, entry.value, "expected a text", "write a single text")
        return Value(entry.value, entry.origin)

    def choice(self, *keys: str, choices: Sequence[str], default: str) -> Value[str]:
        """One of ``choices``; older versions wrote some of them with ``dlio_`` before them."""
        entry = self.text(*keys, default=default)
        word = entry.value.strip().lower().removeprefix("dlio_")
        if word not in choices:
            close = nearest(word, choices)
            meant = f"did you mean {close[0]}? " if close else ""
            raise self.wrong(entry.origin, entry.value, "unknown choice", f"{meant}write one of {', '.join(choices)}")
        return Value(word, entry.origin, entry.given)

    def integers(self, *keys: str) -> Value[list[int]]:
        """A list of whole numbers, empty if not given."""
        entry = self.take(*keys)
        if entry is None:
            return Value([], _defaults(keys[0]), given=False)
        if not isinstance(entry.value, list):
            raise self.wrong(
                entry.origin, entry.value, "expected a list of whole numbers", ("write a list such as [1024, 2048]")
            )
        numbers = [self._number(item, entry.origin, 0) for item in entry.value]
        if any(number != math.floor(number) for number in numbers):
            raise self.wrong(
                entry.origin, entry.value, "expected a list of whole numbers", ("write a list such as [1024, 2048]")
            )
        return Value([int(number) for number in numbers], entry.origin)

    def items(self, key: str) -> Iterator[dict[str, Any]]:
        """The mappings of a list of mappings, such as the columns of a table."""
        entry = self.take(key)
        if entry is None:
            return
        if not isinstance(entry.value, list) or not all(isinstance(item, dict) for item in entry.value):
            raise self.wrong(key, entry.value, "expected a list of groups", "write '- name: ...' for each")
        yield from entry.value

    def is_group(self, key: str) -> bool:
        """Whether ``key`` contains keys of its own."""
        return isinstance(self._find(key)[0], dict)

    def note(self, key: str, reason: str) -> None:
        """Notes that ``key`` is not reproduced, or not exactly; without effect if the file does not contain it."""
        if self._find(key)[1]:
            self._taken.add(key)
            self._notes.setdefault(key, reason)

    def dismiss(self, prefix: str, reason: str) -> None:
        """Notes that known keys at or below ``prefix`` that were not used have no effect in DLIO either."""
        for key, _ in self.leaves():
            if (key == prefix or key.startswith(f"{prefix}.")) and not self._used(key) and reason_of(key) is not None:
                self.note(key, reason)

    def not_honoured(self) -> list[UnusedKey]:
        """Known keys that the recipe does not contain, in the order of the file."""
        keys = []
        for key, value in self.leaves():
            reason = self._noted(key)
            if reason is None and not self._used(key):
                reason = reason_of(key)
            if reason is not None:
                keys.append(self._unused_key(key, value, reason))
        return keys

    def unknown(self) -> list[UnusedKey]:
        """Keys of the file that DLIO does not know, in the order of the file."""
        keys = []
        for key, value in self.leaves():
            if self._used(key) or self._noted(key) is not None or reason_of(key) is not None:
                continue
            close = nearest(key, [name for name in KNOWN if "*" not in name], cutoff=0.8)
            meant = f"; did you mean {close[0]}?" if close else ""
            keys.append(self._unused_key(key, value, f"DLIO does not read this key{meant}"))
        return keys

    def mapped(self) -> int:
        """Number of keys of the file that the recipe reproduces."""
        return sum(1 for key, _ in self.leaves() if self._used(key) and self._noted(key) is None)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yields every key of the file with its value; lists and empty groups count as values."""
        yield from _leaves(self.tree, "")

    def location(self, key: str) -> str:
        """Location ``file:line`` of a key."""
        first, *rest = key.split(".")
        return self.document.location_of((*self._root, self._reader if first == "reader" else first, *rest))

    def wrong(self, key: str, value: Any, problem: str, hint: str) -> ConfigError:
        """The error for a value of the file that cannot be used."""
        return ConfigError(f"{key}={show(value)} ({self.location(key)}): {problem}", hint=hint)

    def _find(self, key: str) -> tuple[Any, bool]:
        node: Any = self.tree
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                return None, False
            node = node[part]
        return node, True

    def _resolve(self, text: str) -> str | None:
        for _ in range(8):  # references may lead to references, but not round in circles
            reference = _REFERENCE.search(text)
            if reference is None:
                return None if "${" in text else text
            value, there = self._find(reference.group(1).removeprefix("workload."))
            if not there or not isinstance(value, str):
                return None
            text = text[: reference.start()] + value + text[reference.end() :]
        return None

    def _number(self, value: Any, key: str, minimum: float) -> float:
        text = value.strip() if isinstance(value, str) else ""
        if not _NUMBER.fullmatch(text):
            raise self.wrong(key, value, "expected a number", "write a plain number, without a unit")
        number = float(text) if re.search(r"[.eE]", text) else int(text)
        if not math.isfinite(number) or abs(number) > _LARGEST:
            raise self.wrong(key, value, "the number is too large", "write a number of at most 64 bits")
        if number < minimum:
            raise self.wrong(key, value, f"must be at least {minimum:g}", f"write {minimum:g} or more")
        return number

    def _used(self, key: str) -> bool:
        return any(key == taken or key.startswith(f"{taken}.") for taken in self._taken)

    def _noted(self, key: str) -> str | None:
        while key:
            if key in self._notes:
                return self._notes[key]
            key = key.rpartition(".")[0]
        return None

    def _unused_key(self, key: str, value: Any, reason: str) -> UnusedKey:
        # Storage sections hold access keys, and what this prints may be shared.
        text = "" if "storage_options" in key or key.startswith("storage.") else show(value)
        line = self.location(key).rpartition(":")[2]
        return UnusedKey(key, text, f"line {line}" if line.isdecimal() else line, reason)


def plain_path(folder: str) -> str | None:
    """Converts a folder name of DLIO to a path; None for object storage."""
    folder = folder.removeprefix("file://")
    if "://" in folder:
        return None
    return posixpath.normpath(folder) if folder else "."


def _defaults(key: str) -> str:
    return f"DLIO's default of {key}"


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict) and value:
            yield from _leaves(value, key)
        else:
            yield key, value
