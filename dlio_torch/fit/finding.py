"""Values of options that follow from a recording, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Confidence = Literal["certain", "likely", "assumed"]
"""``certain``: the program, its libraries or its files state it; ``likely``: it follows from most of the recorded
calls, whose share the evidence gives; ``assumed``: nothing in the recording contradicts it."""


@dataclass(frozen=True)
class Finding:
    """A value of an option, and the reason for it.

    Attributes:
        key: dotted key of the option.
        value: as YAML holds it: text, number, truth value, ``None``, list or mapping.
        evidence: one line that names what was recorded.
        confidence: see :data:`Confidence`.
    """

    key: str
    value: Any
    evidence: str
    confidence: Confidence = "certain"


@dataclass(frozen=True)
class Findings:
    """Findings of one part of a recipe.

    Attributes:
        values: one for each key.
        gaps: what the recording shows and no option reproduces, one line each.
        files: paths of the recorded files whose calls these options reproduce.
    """

    values: tuple[Finding, ...] = ()
    gaps: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()

    def __add__(self, other: Findings) -> Findings:
        """Both; a key of ``other`` replaces the same key of this one."""
        replaced = {finding.key for finding in other.values}
        kept = tuple(finding for finding in self.values if finding.key not in replaced)
        return Findings((*kept, *other.values), (*self.gaps, *other.gaps), self.files | other.files)

    def value(self, key: str, default: Any = None) -> Any:
        """The value of an option; ``default`` if there is no finding on it."""
        return next((finding.value for finding in self.values if finding.key == key), default)


def findings(values: Iterable[Finding], gaps: Iterable[str] = (), files: Iterable[str] = ()) -> Findings:
    """Findings from iterables."""
    return Findings(tuple(values), tuple(gaps), frozenset(files))
