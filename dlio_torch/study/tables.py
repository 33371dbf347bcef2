"""Tables of trials and points, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from dlio_torch.files.atomic_file import replace_text, replaced
from dlio_torch.study.model import Axis, Point, Trial
from dlio_torch.study.trial import FIGURES, PROCESS

_MARKDOWN = (
    *("train.samples_per_s", "au.mean", "step.fetch_s.mean", "io.device_read_share"),
    *("checkpoints.save.bytes_per_s.mean", "checkpoints.restore.bytes_per_s.mean", "trial.cpu_s"),
)


def trials_table(trials: Iterable[Trial], axes: Sequence[Axis] = ()) -> pd.DataFrame:
    """One row per trial in the order of time.

    Columns: ``point``, ``repeat``, one for each axis (text as on the command line), ``ranks``, ``status``,
    ``exit_code``, ``error``, ``started``, ``directory``, ``cache``, ``warnings``, and one for each figure by its
    dotted name, NaN where it was not measured.
    """
    trials = list(trials)
    rows = []
    for trial in trials:
        values = dict(trial.values)
        rows.append(
            {
                "point": trial.point,
                "repeat": trial.repeat,
                **{axis.key: values.get(axis.key) for axis in axes},
                "ranks": trial.ranks,
                "status": trial.status,
                "exit_code": trial.exit_code,
                "error": trial.error or "",
                "started": trial.started,
                "directory": trial.directory,
                "cache": trial.cache,
                "warnings": " ".join(trial.warnings),
                **trial.figures,
            }
        )
    keys = [axis.key for axis in axes if axis.key != "ranks"]
    about = ["point", "repeat", *keys, "ranks", "status", "exit_code", "error", "started", "directory", "cache"]
    names = figure_names(trials)
    table: pd.DataFrame = pd.DataFrame(rows, columns=[*about, "warnings", *names])
    table[names] = table[names].astype(float)
    return table


def figure_names(trials: Iterable[Trial]) -> list[str]:
    """Returns the names of the figures: those that every trial records, then those that a study requests."""
    return list(dict.fromkeys((*FIGURES, *PROCESS, *(name for trial in trials for name in trial.figures))))


def points_table(trials: Iterable[Trial], axes: Sequence[Axis] = (), points: Sequence[Point] = ()) -> pd.DataFrame:
    """One row per point, in the order of their numbers.

    Columns: ``point``, one for each axis, ``ranks``, ``n`` (finished trials), ``failed`` (failed ones), ``error``
    (the last one's), and for each figure its median over the finished trials (by its dotted name) with ``.min``,
    ``.max`` and ``.mad``, the median absolute deviation from the median (not scaled); NaN where none was measured.

    Args:
        trials: of any points.
        axes: columns.
        points: those of the study; one without trials gets a row, too.
    """
    trials = list(trials)
    table, names = trials_table(trials, axes), figure_names(trials)
    about = {point.number: (dict(point.values), point.ranks) for point in points}
    keys = [axis.key for axis in axes if axis.key != "ranks"]
    rows = []
    for number in sorted({*about, *table["point"]}):
        local = table[table["point"] == number]
        done, failed = local[local["status"] == "done"], local[local["status"] == "failed"]
        values, ranks = about.get(number) or (dict(local[keys].iloc[0]), int(local["ranks"].iloc[0]))
        row = {
            "point": number,
            **{key: values.get(key) for key in keys},
            "ranks": ranks,
            "n": len(done),
            "failed": len(failed),
            "error": failed["error"].iloc[-1] if len(failed) else "",
        }
        for name in names:
            measured = done[name].dropna()
            middle = measured.median()
            row |= {name: middle, f"{name}.min": measured.min(), f"{name}.max": measured.max()}
            row[f"{name}.mad"] = (measured - middle).abs().median()
        rows.append(row)
    columns = [f"{name}{item}" for name in names for item in ("", ".min", ".max", ".mad")]
    result: pd.DataFrame = pd.DataFrame(rows, columns=["point", *keys, "ranks", "n", "failed", "error", *columns])
    return result


def write_tables(folder: Path, trials: pd.DataFrame, points: pd.DataFrame, axes: Sequence[Axis] = ()) -> list[str]:
    """Write ``table.*`` (points) and ``trials.*`` as CSV and, where pyarrow is installed, Parquet; Markdown of points.

    Returns:
        What was left out, one line each.

    Raises:
        PreconditionError: a file cannot be written.
    """
    notes = []
    for name, table in (("table", points), ("trials", trials)):
        replace_text(folder / f"{name}.csv", table.to_csv(index=False))
        try:
            import pyarrow  # noqa: F401 - only asks whether it is there
        except ImportError:
            notes.append(
                f"{name}.parquet was not written, because pyarrow is missing; install it with: pip install "
                "'dlio-torch[parquet]'"
            )
        else:
            with replaced(folder / f"{name}.parquet") as file:
                table.to_parquet(file, index=False)
    replace_text(folder / "table.md", markdown(points, axes))
    return notes


def markdown(points: pd.DataFrame, axes: Sequence[Axis] = (), figures: Sequence[str] = _MARKDOWN) -> str:
    """Formats the points as a Markdown table: medians, with the smallest and largest value in brackets."""
    keys = [axis.key for axis in axes if axis.key in points]
    shown = [name for name in figures if name in points and points[name].notna().any()]
    head = ["point", *keys, "n", *shown]
    lines = [_row(head), _row(["---"] * (1 + len(keys)) + ["---:"] * (1 + len(shown)))]
    for _, point in points.iterrows():
        cells = [str(point["point"]), *(str(point[key]) for key in keys), str(point["n"])]
        for name in shown:
            low, middle, high = (point[f"{name}{item}"] for item in (".min", "", ".max"))
            cells.append("-" if pd.isna(middle) else f"{middle:.4g} ({low:.4g} .. {high:.4g})")
        lines.append(
            _row(cells if point["n"] or not point["error"] else [*cells[: 1 + len(keys)], "0", point["error"]])
        )
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"
