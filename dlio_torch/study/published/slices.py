"""Points of a study along one of its axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from dlio_torch.analysis.repeats import Spread


def combinations(
    points: pd.DataFrame, axis: str, fixed: Mapping[str, str], axes: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the rows along one axis, for each combination of the values of the other axes.

    Args:
        points: of :func:`dlio_torch.study.tables.points_table`.
        axis: the one along which points are compared.
        fixed: values of other axes to which the rows are limited.
        axes: keys of all axes of the study.

    Returns:
        What a combination is in words, and its rows; no rows where an axis has no such value.
    """
    rows = points
    for key, value in fixed.items():
        rows = rows[rows[key].astype(str) == value] if key in rows else rows.iloc[0:0]
    others = [key for key in axes if key in points and key != axis and key not in fixed and points[key].nunique() > 1]
    if not others:
        yield _label(fixed), rows
        return
    for chosen, part in rows.groupby(others, sort=False):
        yield _label({**fixed, **dict(zip(others, map(str, chosen), strict=True))}), part


def _label(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def along(rows: pd.DataFrame, axis: str, measured: str) -> list[tuple[str, Spread]]:
    """Returns axis value and repeats of the rows that have the figure (above 0), in order."""
    if axis not in rows or measured not in rows:
        return []
    result = []
    for _, row in rows.iterrows():
        median = row[measured]
        if pd.notna(median) and median > 0:
            low, high = row.get(f"{measured}.min", median), row.get(f"{measured}.max", median)
            result.append((str(row[axis]), Spread(float(median), float(low), float(high), int(row.get("n", 1)))))
    return result
