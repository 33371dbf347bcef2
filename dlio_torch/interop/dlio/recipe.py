"""The text of a recipe, with a comment in each line on the origin of its value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlio_torch.config.yamlfile import dump_scalar
from dlio_torch.interop.dlio.workload_values import Value

_COLUMN = 48

# Groups in the order in which a recipe is read; what is not listed comes after them.
_BEFORE = ("description", "seed", "model", "parallel", "dataset", "generate", "access", "loader")
_ORDER = (*_BEFORE, "train", "compute", "checkpoint")


class Recipe:
    """Settings of a recipe and their origins."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self._origins: dict[str, str] = {}
        self.differences: list[str] = []
        """Differences between DLIO and the recipe that do not belong to a single key."""
        self.words: tuple[str, ...] = ()
        """Verb and arguments that do with the recipe what the workload does; empty: the verb ``run``, without any."""

    def set(self, key: str, value: Value[Any] | Any, origin: str = "") -> None:
        """Sets a dotted key.

        Args:
            key: option of the recipe; or ``scales.<scale>.<option>``.
            value: its value, with its origin or without.
            origin: where it came from, in the words of a comment; default: the origin of ``value``.
        """
        if isinstance(value, Value):
            origin, value = origin or value.origin, value.value
        self.settings[key] = value
        self._origins[key] = origin

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key."""
        return self.settings.get(key, default)

    def unset(self, key: str) -> None:
        """Removes a dotted key."""
        del self.settings[key], self._origins[key]

    def differs(self, text: str) -> None:
        """Notes a difference between DLIO and the recipe."""
        self.differences.append(text)

    def body(self) -> str:
        """The settings as YAML text."""
        rank = {name: i for i, name in enumerate(_ORDER)}
        keys = sorted(self.settings, key=lambda key: rank.get(key.partition(".")[0], len(rank)))
        lines: list[str] = []
        open_groups: list[str] = []
        for key in keys:
            *groups, name = key.split(".")
            shared = 0
            while shared < min(len(groups), len(open_groups)) and groups[shared] == open_groups[shared]:
                shared += 1
            for depth in range(shared, len(groups)):
                lines += [""] if depth == 0 else []
                lines.append(f"{'  ' * depth}{groups[depth]}:")
            open_groups = groups
            lines += self._lines(key, name, len(groups))
        return "\n".join(lines) + "\n"

    def _lines(self, key: str, name: str, depth: int) -> list[str]:
        value, note, indent = self.settings[key], self._origins[key], "  " * depth
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = [_commented(f"{indent}{name}:", note)]
            for item in value:
                pairs = {inner: part for inner, part in item.items() if inner != "origin"}
                lines.append(_commented(f"{indent}  - {_flow(pairs)}", item.get("origin", "")))
            return lines
        return [_commented(f"{indent}{name}: {_plain(value)}", note)]


def comment(lines: Sequence[str]) -> str:
    """Lines of text as YAML comments, each on one line."""
    return "".join(f"# {_one_line(line)}".rstrip() + "\n" for line in lines)


def _commented(text: str, note: str) -> str:
    return f"{text:<{_COLUMN}} # {_one_line(note)}" if note else text


def _one_line(text: str) -> str:
    # A comment ends at a line end of any kind, and YAML refuses what cannot be printed.
    return re.sub(r"\s+", " ", "".join(char if char.isprintable() or char.isspace() else "?" for char in text)).strip()


def _flow(group: dict[str, Any]) -> str:
    return f"{{{', '.join(f'{name}: {_plain(value)}' for name, value in group.items())}}}"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        # Inside braces and brackets too, and with OmegaConf's references switched off.
        text = dump_scalar([re.sub(r"(\\*)\$\{", r"\1\1\\${", value)])[1:-1]
        return text if text == value or text[:1] in "'\"" else f'"{text}"'
    return dump_scalar(value)
