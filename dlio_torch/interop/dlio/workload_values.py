"""Values and unused keys of a workload file, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Value(Generic[T]):
    """A value and the key of its origin, as text for a comment; ``given``: the file contains the key."""

    value: T
    origin: str
    given: bool = True


@dataclass(frozen=True)
class UnusedKey:
    """A key of the file that the recipe does not reproduce.

    Attributes:
        key: dotted key.
        text: its value as messages show it; empty where it may be a secret.
        line: where it stands in the file.
        reason: why it is not honoured.
    """

    key: str
    text: str
    line: str
    reason: str

    def __str__(self) -> str:
        value = f"={self.text}" if self.text else ""
        return f"{self.key}{value} ({self.line}): {self.reason}"
