"""Formatting of Python library calls as text that users can copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WIDTH = 100


class CodeText(str):
    """Text that is code, not a value."""


def call_text(name: str, arguments: Sequence[str], keywords: dict[str, Any]) -> str:
    """Formats a call as Python code, on one line if it is short enough.

    Args:
        name: of the function.
        arguments: positional ones, as code.
        keywords: values; text that is code is :class:`CodeText`.
    """
    parts = [*arguments, *(f"{key}={literal(value)}" for key, value in keywords.items())]
    line = f"{name}({', '.join(parts)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), ")"])


def literal(value: Any) -> str:
    """Formats a value as Python code, with strings in double quotes."""
    if isinstance(value, CodeText):
        return str(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)
