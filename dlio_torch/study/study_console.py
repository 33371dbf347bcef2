"""Prints the plan and the result of a study on the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.repeats import Spread, leaders
from dlio_torch.study.metrics import metric
from dlio_torch.study.model import NOT_APPLICABLE, Point, Study
from dlio_torch.study.needs import StudyNeeds
from dlio_torch.study.values import NUMBER_UNITS, column_text, counted, text_of
from dlio_torch.units import format_duration, format_size

_MOST_FIGURES = 3
_MOST_ROWS = 40
_MOST_VALUES = 12
_WRAPPED = 11
"""Number of characters from which a heading takes several lines."""
_MARKS = ("best", "first", "as good")
"""Marks of a point that is best beyond noise, has the best median, does not differ from the best."""
_MORE = ("train.samples_per_s", "au.mean", "step.fetch_s.mean", "io.device_read_share", "trial.cpu_s")
"""Figures that are shown if a study names fewer figures than fit."""


def estimate(
    study: Study, points: Sequence[Point], needs: StudyNeeds, notes: Sequence[str] = (), done: int = 0
) -> Iterator[str]:
    """Returns the plan of a study, line by line: trials, data, space, time.

    Args:
        study: what is asked.
        points: those that can be run.
        needs: what they need.
        notes: what was left out.
        done: trials that are finished already.
    """
    count = len(points) * study.repeats
    finished = f", {done} of them done" if done else ""
    yield f"study: {study.title}"
    yield from (f"scale: {line}" for line in study.scaled)
    repeats = counted(study.repeats, "repeat")
    yield f"trials: {counted(len(points), 'point')}, {repeats} of each: {count} in all{finished}"
    yield from axis_lines(study)
    yield from (f"  {note}" for note in (*notes, *needs.notes))
    missing = [data_set for data_set in needs.data if data_set.missing_files]
    if needs.data:
        size, there = (format_size(sum(data_set.bytes for data_set in needs.data)), len(needs.data) - len(missing))
        yield f"data: {counted(len(needs.data), 'data set')}, about {size}; {there} there already"
    for item in missing:
        size = format_size(item.missing_bytes)
        files, users = counted(item.missing_files, "file"), _list(item.points)
        yield f"  to write: {files}, about {size}, in {item.folder} (points {users})"
    if kept := max(needs.checkpoint_bytes, *needs.checkpoint_roots.values(), 0.0):
        yield f"checkpoints: up to {format_size(kept)} of one run, removed at the end of the run"
    fresh = {point.number for point in points if point.fresh or study.start == "fresh"}
    least = needs.at_least_s(study.repeats, fresh) * (1 - done / count if count else 0)
    yield f"time: at least about {format_duration(least)} of emulated compute and of starting processes, plus I/O"


def axis_lines(study: Study) -> Iterator[str]:
    """Returns the axes with their values, one line per axis."""
    for axis in study.axes:
        more = f" and {len(axis.values) - _MOST_VALUES} more" if len(axis.values) > _MOST_VALUES else ""
        yield f"  {axis.key}: {', '.join(axis.values[:_MOST_VALUES])}{more}"


def draw_points(console: Console, study: Study, points: pd.DataFrame) -> None:
    """Print the points, best first, and a sentence on the best point."""
    objective = study.figures[0]
    others = [name for name in dict.fromkeys((*study.figures[1:], *_MORE)) if name != objective and name in points]
    figures = [objective, *(name for name in others if points[name].notna().any())][:_MOST_FIGURES]
    parts = _workloads(study, points)
    table = _table(study, parts, figures)
    # What fits beside the options; table.csv has all.
    while len(figures) > 1 and console.measure(table).minimum > console.width:
        figures = figures[:-1]
        table = _table(study, parts, figures)
    console.print(table)
    for _, row in points[points["failed"] > 0].head(_MOST_ROWS).iterrows():
        console.print(f"point {row['point']} ({_label(study, row)}) failed: {row['error']}", soft_wrap=True)
    for part in parts:
        console.print(sentence(study, part))


def _table(study: Study, parts: Sequence[pd.DataFrame], figures: Sequence[str]) -> Table:
    """The points of each workload, best first."""
    objective, keys = figures[0], [axis.key for axis in study.axes]
    repeated = any(part["n"].max() > 1 for part in parts)
    title = f"points{' (medians of the repeats)' if repeated else ''}"
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="none")
    for name in ("point", *(key.replace(".", ".\n") for key in keys)):
        table.add_column(name, overflow="fold", min_width=max(map(len, name.split("\n"))))
    shown = [_heading(name) for name in figures]
    for name in ("n", shown[0], *(["lowest", "highest"] if repeated else []), *shown[1:]):
        table.add_column(name, justify="right", min_width=max(map(len, name.split("\n"))))
    table.add_column("", min_width=max(map(len, _MARKS)) if repeated else 0)
    marks: dict[int, str] = {}
    for part in parts if repeated else ():
        first = leading(part, objective, study.better)
        marks |= {number: _mark(number, first, len(part)) for number in first}
    best_first = (
        part.sort_values(objective, ascending=study.better == "lower", na_position="last", kind="stable")
        for part in parts
    )
    ordered = pd.concat(list(best_first))
    ordered = ordered[ordered["n"] > 0]
    for _, row in ordered.head(_MOST_ROWS).iterrows():
        cells = [_cell(name, row, name) for name in figures]
        if repeated:
            cells[1:1] = [_cell(objective, row, f"{objective}{item}") for item in (".min", ".max")]
        table.add_row(
            str(row["point"]), *(str(row[key]) for key in keys), str(row["n"]), *cells, marks.get(row["point"], "")
        )
    if len(ordered) > _MOST_ROWS:
        table.caption = f"table.csv contains {len(ordered) - _MOST_ROWS} more points"
    return table


def _workloads(study: Study, points: pd.DataFrame) -> list[pd.DataFrame]:
    """Groups the points that can be compared with each other: all points, or the points of each workload."""
    keys = [axis.key for axis in study.axes if not axis.compared and points[axis.key].nunique() > 1]
    return [part for _, part in points.groupby(keys, sort=False)] if keys else [points]


def leading(points: pd.DataFrame, figure: str, better: Literal["higher", "lower"]) -> tuple[int, ...]:
    """Returns the point with the best median, and the points that do not differ from it beyond noise.

    See :mod:`dlio_torch.analysis.repeats`: two points differ where the ranges of their repeats do not touch.
    """
    measured = points[points["n"] > 0].dropna(subset=[figure])
    spreads = {
        int(row["point"]): Spread(row[figure], row[f"{figure}.min"], row[f"{figure}.max"], int(row["n"]))
        for _, row in measured.iterrows()
    }
    return leaders(spreads, better) if spreads else ()


def sentence(study: Study, points: pd.DataFrame) -> str:
    """Returns the sentence on the best point, as far as noise permits."""
    figure = study.figures[0]
    first = leading(points, figure, study.better)
    if not first:
        return f"No point has a value of {metric(figure).label} ({figure})."
    row = points[points["point"] == first[0]].iloc[0]
    objective = metric(figure)
    name = f"point {first[0]} ({_label(study, row)}): {objective.label} {text_of(row[figure], objective.unit)}"
    if len(first) == 1 and len(points) > 1:
        return f"Best, beyond the noise of the repeats: {name}."
    if len(points) == 1:
        return f"{name}."
    extreme = "Highest" if study.better == "higher" else "Lowest"
    others = [number for number in first[1:] if points.loc[points["point"] == number, "n"].iloc[0] > 1]
    if len(others) < len(first) - 1 or row["n"] < 2:
        return f"{extreme} of single measurements: {name}; set repeats=3 to compare the difference with noise."
    return (
        f"{extreme} median: {name}; within the noise of the repeats {counted(len(others), 'other point')} "
        f"{'is' if len(others) == 1 else 'are'} as good: {_list(tuple(others))}."
    )


def _label(study: Study, row: pd.Series) -> str:
    values = [(axis.key, row[axis.key]) for axis in study.axes]
    return " ".join(f"{key}={value}" for key, value in values if value != NOT_APPLICABLE) or "the only point"


def _mark(number: int, first: tuple[int, ...], count: int) -> str:
    if count == 1:
        return ""
    best, ahead, alike = _MARKS
    return best if len(first) == 1 else alike if number != first[0] else ahead


def _cell(name: str, row: pd.Series, column: str) -> str:
    return "-" if pd.isna(row[column]) else column_text(row[column], metric(name).unit)


def _heading(name: str) -> str:
    heading = metric(name)
    unit = f" ({heading.unit})" if heading.unit not in ("", *NUMBER_UNITS) else ""
    return "\n".join(textwrap.wrap(f"{heading.label}{unit}", _WRAPPED, break_long_words=False))


def _list(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_VALUES]))
    return shown if len(numbers) <= _MOST_VALUES else f"{shown} and {len(numbers) - _MOST_VALUES} more"
