"""Parses the publication in a study file (YAML).

::

    published:                # figures, a list
      - title: "Fig. 9 a: transfer size, ImageNet"
        axis: dataset.tfrecord.transfer_size
        what: job time        # what was published, its unit and direction
        unit: s
        better: lower
        points: {64KiB: 76, 1MiB: 65}
        system: "Theta, 8 ranks, Lustre"
        source: where the points are from, and how they were read
        reference: 1MiB       # where both sides are 1; optional, as are the following
        name: of the line, where a figure has several
        at: {other.axis: value}
        measured: train.elapsed_s
        measured_better: lower
    statements:               # sentences, a list
      - {text: "...", source: "...", axis: ..., trend: optimum, value: 1MiB}
    remarks: ["...", "..."]
    larger_than_memory: true  # the publication's data did not fit into memory

``measured`` is the first of the study's ``figures``, and its direction the study's ``better``, where nothing else is
said.  Kinds of trends: :data:`dlio_torch.study.published.trends.TRENDS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlio_torch.config.yamlfile import Document
from dlio_torch.errors import ConfigError
from dlio_torch.study.published.trends import TRENDS, Better, Trend

_ELAPSED = "train.samples_per_s"
_SERIES = ("title", "axis", "what", "unit", "better", "points", "system", "source")
_SERIES_MORE = ("reference", "name", "at", "measured", "measured_better")
_CLAIM = ("text", "source", "axis", "trend")
_CLAIM_MORE = ("value", "start", "end", "factor", "at", "measured", "better")
_NEEDS = {"optimum": "value", "plateau": "value", "factor": "factor"}


@dataclass(frozen=True)
class Series:
    """Points of a published figure.

    Args:
        title: of the figure; series of one title share a figure.
        axis: key of the swept option along its abscissa.
        points: text of the axis' value and published value, in the order of the abscissa.
        quantity: that was published (``"I/O time"``).
        unit: of it (``"s"``, ``"share"``).
        better: its direction.
        measured: dotted path of our figure beside it.
        measured_better: direction of that.
        system: what they were measured on, ranks included.
        source: where they are from, and how they were read.
        reference: value of the axis at which both sides are 1; ``""``: the first that both have.
        name: of the line where a figure has several.
        other_axes: values of other axes at which our points are taken.
    """

    title: str
    axis: str
    points: tuple[tuple[str, float], ...]
    quantity: str
    unit: str
    better: Better
    measured: str
    measured_better: Better
    system: str
    source: str
    reference: str = ""
    name: str = ""
    other_axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A published statement as a trend that can be checked.

    Args:
        text: the sentence.
        source: where it is from.
        axis: key of the swept option along which it is checked.
        trend: what must hold.
        measured: dotted path of our figure.
        better: direction of that.
        other_axes: values of other axes at which our points are taken.
    """

    text: str
    source: str
    axis: str
    trend: Trend
    measured: str
    better: Better
    other_axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """The publication as a study file describes it.

    Args:
        series: published points.
        claims: published sentences.
        remarks: what is to be said with them, one paragraph each.
        larger_than_memory: the publication's data did not fit into memory, and that is the point.
    """

    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    larger_than_memory: bool = False


def parse(document: Document) -> Published:
    """Parses the part of a study file that describes its publication.

    Raises:
        ConfigError: malformed; names the line.
    """
    return _PublicationReader(document).read()


class _PublicationReader:
    """Converts a document to a :class:`Published`."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.tree = document.tree
        figures = self.tree.get("figures")
        self.measured = str(figures[0]) if isinstance(figures, list) and figures else _ELAPSED
        self.better: Better = "lower" if self.tree.get("better") == "lower" else "higher"
        axes = self.tree.get("axes")
        self.axes = [str(axis.get("key")) for axis in axes if isinstance(axis, dict)] if isinstance(axes, list) else []

    def read(self) -> Published:
        flag = self.tree.get("larger_than_memory") or "false"
        if flag not in ("true", "false"):
            raise self.wrong(
                ("larger_than_memory",),
                f"{flag}: expected true or false",
                "write true or false, or leave larger_than_memory out",
            )
        remarks = self.tree.get("remarks") or []
        if not isinstance(remarks, list) or not all(isinstance(remark, str) for remark in remarks):
            raise self.wrong(("remarks",), "expected a list of texts", "write one line '- <text>' per text")
        return Published(
            series=tuple(self.series(item, path) for item, path in self.items("published", _SERIES, _SERIES_MORE)),
            claims=tuple(self.claim(item, path) for item, path in self.items("statements", _CLAIM, _CLAIM_MORE)),
            remarks=tuple(" ".join(remark.split()) for remark in remarks),
            larger_than_memory=flag == "true",
        )

    def series(self, item: dict[str, Any], path: tuple[str, ...]) -> Series:
        given = item["points"]
        if not isinstance(given, dict) or not given:
            raise self.wrong(
                (*path, "points"),
                "expected '<value>: <number>' lines",
                "write values and numbers, for example {64KiB: 76, 1MiB: 65}",
            )
        points = tuple((value, self.number(text, (*path, "points", value))) for value, text in given.items())
        reference = self.text(item, "reference", path)
        if reference and reference not in given:
            raise self.wrong(
                (*path, "reference"),
                f"there is no point at the reference {reference}",
                f"points are {', '.join(given)}",
            )
        return Series(
            title=self.text(item, "title", path),
            axis=self.axis(item, path),
            points=points,
            quantity=self.text(item, "what", path),
            unit=self.text(item, "unit", path),
            better=self.direction(item, "better", path, self.better),
            measured=self.text(item, "measured", path) or self.measured,
            measured_better=self.direction(item, "measured_better", path, self.better),
            system=self.text(item, "system", path),
            source=self.text(item, "source", path),
            reference=reference,
            name=self.text(item, "name", path),
            other_axes=self.other_values(item, path),
        )

    def claim(self, item: dict[str, Any], path: tuple[str, ...]) -> Claim:
        kind = self.text(item, "trend", path)
        if kind not in TRENDS:
            raise self.wrong((*path, "trend"), f"{kind}: no such trend", f"trends are {', '.join(TRENDS)}")
        needed = _NEEDS.get(kind)
        if needed is not None and needed not in item:
            raise self.wrong((*path, "trend"), f"{kind} needs {needed}", f"add {needed}: ...")
        factor = self.number(item["factor"], (*path, "factor")) if "factor" in item else None
        value, start, end = (self.text(item, key, path) for key in ("value", "start", "end"))
        return Claim(
            text=self.text(item, "text", path),
            source=self.text(item, "source", path),
            axis=self.axis(item, path),
            trend=Trend(kind, value=value, start=start, end=end, factor=factor),
            measured=self.text(item, "measured", path) or self.measured,
            better=self.direction(item, "better", path, self.better),
            other_axes=self.other_values(item, path),
        )

    def items(
        self, key: str, needed: Sequence[str], more: Sequence[str]
    ) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        result = self.tree.get(key) or []
        if not isinstance(result, list):
            raise self.wrong((key,), "expected a list", f"write '- {needed[0]}: ...' lines")
        items: list[tuple[dict[str, Any], tuple[str, ...]]] = []
        for i, item in enumerate(result):
            path: tuple[str, ...] = (key, str(i))
            if not isinstance(item, dict):
                raise self.wrong(path, "expected 'key: value' lines", f"keys are {', '.join((*needed, *more))}")
            strange = [name for name in item if name not in (*needed, *more)]
            if strange:
                raise self.wrong((*path, strange[0]), "unknown key", f"keys are {', '.join((*needed, *more))}")
            missing = [name for name in needed if not item.get(name)]
            if missing:
                raise self.wrong(path, f"{missing[0]} is missing", f"add {missing[0]}: ...")
            items.append((item, path))
        return items

    def text(self, item: dict[str, Any], key: str, path: tuple[str, ...]) -> str:
        result = item.get(key) or ""
        if not isinstance(result, str):
            raise self.wrong((*path, key), "expected text", "write one line")
        return " ".join(result.split())

    def axis(self, item: dict[str, Any], path: tuple[str, ...]) -> str:
        return self.known(self.text(item, "axis", path), (*path, "axis"))

    def other_values(self, item: dict[str, Any], path: tuple[str, ...]) -> dict[str, str]:
        result = item.get("at") or {}
        if not isinstance(result, dict) or not all(isinstance(value, str) for value in result.values()):
            raise self.wrong((*path, "at"), "expected '<axis>: <value>'", "write {layout: padded}")
        return {self.known(key, (*path, "at", key)): value for key, value in result.items()}

    def known(self, axis: str, path: tuple[str, ...]) -> str:
        if axis not in self.axes:
            raise self.wrong(path, f"the study has no axis {axis}", f"axes are {', '.join(self.axes)}")
        return axis

    def direction(self, item: dict[str, Any], key: str, path: tuple[str, ...], default: Better) -> Better:
        result = self.text(item, key, path) or default
        if result == "higher":
            return "higher"
        if result == "lower":
            return "lower"
        raise self.wrong((*path, key), f"{result}: no such direction", "write higher or lower")

    def number(self, text: Any, path: tuple[str, ...]) -> float:
        try:
            value = float(text)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value) or value <= 0:
            raise self.wrong(path, f"{text}: expected a number above 0", "write a number, for example 1.25")
        return value

    def wrong(self, path: tuple[str, ...], problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{'.'.join(path)} ({self.document.location_of(path)}): {problem}", hint=hint)
