"""Section that compares published points with measured points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.page_blocks import UNKNOWN, Block, Figure, Notes, Section, Table, Text
from dlio_torch.report.html.theme import clean
from dlio_torch.study.page.findings import PublishedFigure
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.page.published_figure import (
    measured_times,
    published_figure,
    published_times,
    reference,
)
from dlio_torch.study.page.section_axes import status
from dlio_torch.study.values import span_text, text_of

_MOST_PANELS = 9


def published_section(study: StudyView) -> Section | None:
    """Builds figures with both lines, tables with both values, and sentences on the agreement."""
    data = study.data
    if not (data.published or data.statements or data.remarks):
        return None
    blocks: list[Block] = []
    if data.remarks:
        blocks.append(Notes([clean(remark) for remark in data.remarks]))
    if data.statements:
        rows = [
            [clean(statement.text), clean(statement.verdict), clean(statement.words), clean(statement.source)]
            for statement in data.statements
        ]
        heads = ("<published statement", "<<verdict", "<what was measured", "<source")
        blocks.append(Table("Published statements and measurements of this study", heads, rows))
    sentence = " ".join(statement.words for statement in data.statements)
    titles = dict.fromkeys(item.title for item in data.published)
    for number, title in enumerate(titles):
        series = [item for item in data.published if item.title == title and item.points]
        if not series:
            continue
        words = dict.fromkeys(clean(word) for curve in series for word in curve.words if word.strip() not in sentence)
        if words:
            blocks.append(Text(" ".join(words)))
        svg = published_figure(series[:_MOST_PANELS], f"published-{number}")
        blocks.append(Figure(svg, clean(title), _caption(series), _status(study, series)))
        blocks += [_table(curve) for curve in series]
    return Section("published", "Published and measured", blocks)


def _caption(series: Sequence[PublishedFigure]) -> str:
    result = series[0]
    start = reference(result)
    positions = f" at {clean(result.axis)}={clean(start.value)}" if start is not None else ""
    theirs = dict.fromkeys(_times(other.published_label, other.published_better) for other in series)
    ours = dict.fromkeys(_times(other.measured_label, other.measured_better) for other in series)
    repeated = any(
        point.measured is not None and point.measured.count > 1 for other in series for point in other.points
    )
    text = (
        f"Both lines are relative to their own value{positions}; higher is better. Published: "
        f"{', '.join(theirs)}; measured: {'median of ' if repeated else ''}"
        f"{', '.join(ours)}{'; bars from the smallest to the largest repeat' if repeated else ''}."
    )
    if len(series) > _MOST_PANELS:
        text += f" {len(series) - _MOST_PANELS} further series are only in the tables."
    return text


def _times(label: str, better: Literal["higher", "lower"]) -> str:
    """Returns the label of a line: ``job time (reference / value)``."""
    return f"{clean(label)} ({'value / reference' if better == 'higher' else 'reference / value'})"


def _status(study: StudyView, series: Sequence[PublishedFigure]) -> str:
    systems = list(dict.fromkeys(clean(curve.system) for curve in series if curve.system))
    sources = list(dict.fromkeys(clean(curve.source) for curve in series if curve.source))
    text = status(study)
    if systems:
        text += (
            f" Published for {'; '.join(systems)}, which is another machine, so only the shapes of the lines can agree."
        )
    return text + (f" Source: {'; '.join(sources)}." if sources else "")


def _table(figure: PublishedFigure) -> Table:
    rows = []
    labelled = any(point.label for point in figure.points)
    repeated = any(point.measured is not None and point.measured.count > 1 for point in figure.points)
    for point in figure.points:
        theirs, ours = published_times(figure, point), measured_times(figure, point)
        measured = point.measured
        rows.append(
            [
                clean(point.value),
                *([clean(point.label)] if labelled else []),
                UNKNOWN if point.published is None else text_of(point.published, figure.published_unit),
                UNKNOWN if measured is None else text_of(measured.median, figure.measured_unit),
                *([_span(measured, figure.measured_unit)] if repeated else []),
                UNKNOWN if theirs is None else f"{theirs:.3g}",
                UNKNOWN if ours is None else f"{ours.median:.3g}",
            ]
        )
    heads = [f"<<{clean(figure.axis)}"]
    heads += ["<<in the publication"] if labelled else []
    heads += [f"published {clean(figure.published_label)}", f"measured {clean(figure.measured_label)}"]
    heads += ["smallest to largest"] if repeated else []
    heads += ["published, relative to the reference", "measured, relative to the reference"]
    return Table(clean(figure.series or figure.published_label), tuple(heads), rows)


def _span(measured: Spread | None, unit: str) -> str:
    return UNKNOWN if measured is None or measured.count < 2 else span_text(measured.low, measured.high, unit)
