"""Building blocks of an HTML page as plain data: sections, figures, tables, facts and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

NOT_MEASURED = "not measured"
UNKNOWN = "\u2013"
"""Mark in a table for a missing value."""


@dataclass(frozen=True)
class Figure:
    """A figure (SVG) and its caption.

    Args:
        svg: text of an ``<svg>`` element, from :func:`dlio_torch.report.html.svg.to_svg` only.
        title: what it shows, a few words.
        method: how it was computed, one or more sentences.
        status: what its figures are (exact or estimated, cold or warm cache).
    """

    svg: str
    title: str
    method: str
    status: str
    kind: Literal["figure"] = "figure"


@dataclass(frozen=True)
class Table:
    """A table, whose cells are all text.

    Args:
        title: what it shows.
        columns: headings; one that starts with ``<`` is of text (left, may wrap), with ``<<`` of words that stay on
            one line, others are of numbers.
        rows: cells.
        note: how it was computed, and what was left out.
        foot: a last row of sums.
        tall: whether the first cell of a row stands on a line of its own, above the others.
        emphasis: for each row whether it stands out; empty: none does.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""
    foot: Sequence[str] | None = None
    tall: bool = False
    emphasis: Sequence[bool] = ()
    kind: Literal["table"] = "table"

    @property
    def headings(self) -> list[tuple[str, str]]:
        """The text of each column heading, and the style of its column."""
        counts = []
        for name in self.columns:
            style = "text line" if name.startswith("<<") else "text" if name.startswith("<") else ""
            counts.append((name.removeprefix("<").removeprefix("<"), style))
        return counts


@dataclass(frozen=True)
class Facts:
    """A list of facts: pairs of a label and a value."""

    rows: Sequence[tuple[str, str]]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True)
class Tiles:
    """Tiles of the key figures: the value, the label and a remark for each."""

    tiles: Sequence[tuple[str, str, str]]
    kind: Literal["tiles"] = "tiles"


@dataclass(frozen=True)
class Changes:
    """A short list of recommended changes.

    Args:
        title: its heading.
        items: the change (``key=value``), the predicted gain and the reason of each.
        note: where all of them are, or why there is none.
        settings: whether the changes are settings to copy, not prose.
    """

    title: str
    items: Sequence[tuple[str, str, str]]
    note: str = ""
    settings: bool = True
    kind: Literal["changes"] = "changes"


@dataclass(frozen=True)
class Text:
    """A paragraph of one or two sentences."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Listing:
    """Preformatted text that a reader can copy."""

    title: str
    text: str
    kind: Literal["listing"] = "listing"


@dataclass(frozen=True)
class Absent:
    """Note that data were not recorded, and how to record them."""

    text: str
    kind: Literal["absent"] = "absent"


@dataclass(frozen=True)
class Notes:
    """A list of sentences."""

    notes: Sequence[str]
    kind: Literal["notes"] = "notes"


@dataclass(frozen=True)
class Folded:
    """A long block that opens on click and is always open on paper."""

    summary: str
    blocks: Sequence[Block] = ()
    text: str = ""
    kind: Literal["folded"] = "folded"


Block = Figure | Table | Facts | Tiles | Changes | Text | Listing | Absent | Notes | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading.

    Args:
        key: its anchor.
        title: its heading.
        blocks: what stands in it, from the top.
    """

    key: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    @property
    def absent(self) -> bool:
        """Whether no data were recorded for the section."""
        return all(block.kind == "absent" for block in self.blocks)
