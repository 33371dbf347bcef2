"""Explains the figures of ``summary.json``: definition, unit, and the meaning of 0 (``explain summary.<name>``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

# PyYAML's C parser, where it was built with it, is ten times as fast.
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

ROOT = "summary"
"""Prefix that tells names of figures from names of options."""


@dataclass(frozen=True)
class SummaryFigure:
    """Definition of one figure, or of several with the same meaning.

    Attributes:
        name: dotted; ``*`` stands for one name, ``**`` for any number of them.
        unit: ``s``, ``B``, ``share`` (0 to 1) and so on; empty: a number.
        meaning: in words.
        zero: what 0 says; ``None``: it cannot be 0.
    """

    name: str
    unit: str
    meaning: str
    zero: str | None = None

    def matches(self, path: str) -> bool:
        """Whether this definition applies to the figure at ``path``."""
        pattern = re.escape(self.name).replace(r"\*\*", ".+").replace(r"\*", "[^.]+")
        return re.fullmatch(pattern, path) is not None


@cache
def figures() -> tuple[SummaryFigure, ...]:
    """All definitions; the first one that matches a path applies."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, _LOADER)
    return tuple(SummaryFigure(name, *entry) for name, entry in entries.items())


def find(path: str) -> SummaryFigure | None:
    """Definition of the figure at a path of ``summary.json``, e.g. ``train.samples_per_s``; None if there is none."""
    return next((figure for figure in figures() if figure.matches(path)), None)


def numbers(summary: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yields all numbers of a summary with their paths; entries of lists have the path of the list.

    Args:
        summary: or a part of it.
        path: of that part.
    """
    if isinstance(summary, Mapping):
        for name, value in summary.items():
            yield from numbers(value, f"{path}.{name}" if path else str(name))
    elif isinstance(summary, list | tuple):
        for value in summary:
            yield from numbers(value, path)
    elif isinstance(summary, int | float) and not isinstance(summary, bool):
        yield path, summary


def explain(key: str) -> str | None:
    """Explains ``summary``, one ``summary.<figure>``, or all figures below it; None if there is no such figure."""
    name = key.removeprefix(ROOT).lstrip(".")
    exact = find(name) if name else None
    chosen = [exact] if exact else [figure for figure in figures() if not name or figure.name.startswith(f"{name}.")]
    return "".join(_lines(figure, name if exact else figure.name) for figure in chosen) or None


def _lines(figure: SummaryFigure, name: str) -> str:
    unit = f" [{figure.unit}]" if figure.unit else ""
    zero = "cannot be 0" if figure.zero is None else f"0: {figure.zero}"
    return f"{ROOT}.{name}{unit}: {figure.meaning}\n  {zero}; null: not measured\n"
