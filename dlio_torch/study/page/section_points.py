"""Sections of every study: key figures, table of settings, failed trials, all trials."""

from __future__ import annotations

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.page_blocks import NOT_MEASURED, UNKNOWN, Block, Folded, Notes, Section, Table, Text, Tiles
from dlio_torch.report.html.theme import clean
from dlio_torch.study.axes import magnitude
from dlio_torch.study.metrics import STORAGE_LIMIT, STORAGE_RATE, STORAGE_SHARE, Metric
from dlio_torch.study.model import NOT_APPLICABLE, Axis, Trial
from dlio_torch.study.page.page_sentences import gain_text, times, warnings
from dlio_torch.study.page.point_trials import PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.page.ranking_figure import ranking_figure
from dlio_torch.study.page.section_ladder import ladder_tiles
from dlio_torch.study.values import NUMBER_UNITS, column_text, counted, span_text, text_of
from dlio_torch.units import format_duration, percent

_MOST_CASES = 4
_MOST_NOTES = 14
_MOST_POINTS = 48
_MOST_TRIALS = 1500
_APART = (STORAGE_RATE.key, STORAGE_LIMIT.key, STORAGE_SHARE.key)  # shown where the storage is


def overview(study: StudyView, description: str = "") -> Section:
    """Builds the first screen: picture of the settings, key figures, description if longer than a line, warnings."""
    # A headspace study has its own picture, right below.
    figure = ranking_figure(study) if study.data.kind != "headspace" else None
    blocks: list[Block] = [figure] if figure is not None else []
    blocks += [Tiles(tiles)] if (tiles := _tiles(study)) else []
    blocks += [Text(clean(description))] if description else []
    notes = [clean(note) for note in warnings(study)]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES} more warnings"]
    if notes:
        blocks.append(Notes(notes))
    return Section("overview", "", blocks)


def _tiles(study: StudyView) -> list[tuple[str, str, str]]:
    tiles = ladder_tiles(study.data.ladder)
    # A search does not choose by the best median, which may be that of a single lucky run.
    chosen = study.data.search.chosen if study.data.search is not None else None
    for case in () if study.data.ladder else study.cases[:_MOST_CASES]:
        first = study.by_number[chosen if chosen in study.scores else case.leaders[0]]
        best = "best" if case.best is not None or not study.repeated else "best median"
        value, unit = _tile(study, first)
        subject = (
            f"{best} {study.objective.label}" if chosen is None else f"{study.objective.label} of the chosen setting"
        )
        tiles.append((value, f"{subject}{unit}", study.label(first.settings)))
        default = study.default
        local = default is not None and default.number in study.scores and study.case_of(default) is case
        if default is not None and local and default.number != first.number:
            value, unit = _tile(study, default)
            tiles.append((value, f"of the default{unit}", study.label(default.settings)))
            noise = "beyond noise" if study.differ(first, default) else "within noise"
            noise = noise if study.repeated else "noise not measured"
            if study.data.confirmation is None:
                tiles.append((f"{times(study.gain(first, default))}", "best over default", noise))
    if (sure := study.data.confirmation) is not None:
        interval = "one pair" if sure.low is None or sure.high is None else span_text(1 + sure.low, 1 + sure.high, "")
        gained = sure.low is None or sure.low > 0
        who, caption = ("recommended", "confirmed") if gained else ("chosen", "within noise")
        tiles.append((times(1 + sure.gain), f"{who} over default", f"{caption}: {interval}"))
    if study.data.trials:
        done = sum(1 for trial in study.data.trials if not trial.failed)
        failed = len(study.data.trials) - done
        remark = f"{len(study.points)} settings" + (f", {counted(failed, 'trial')} failed" if failed else "")
        tiles.append((str(done), "finished trials", remark))
        spent = [trial.wall_s for trial in study.data.trials if trial.wall_s is not None]
        if spent:
            tiles.append(
                (format_duration(sum(spent)), "time in trials", f"{format_duration(sum(spent) / len(spent))} each")
            )
    if study.device_shares:
        least = percent(min(study.device_shares))
        tiles.append((least, "smallest share from the device", "of the bytes read; the rest came from memory"))
    return tiles


def _tile(study: StudyView, point: PointTrials) -> tuple[str, str]:
    """Returns a point's objective, and its unit if the label shows the unit."""
    unit = study.objective.unit
    text = column_text(study.scores[point.number].median, unit)
    return text, "" if unit in NUMBER_UNITS else f", {unit}"


def point_section(study: StudyView) -> Section:
    """The table of settings."""
    shown = [point for point in study.points if point.number in study.scores]
    # Over one option the eye follows its values; over several it looks for the best.
    order = list(study.ranked)
    sorted_by = f"best {study.objective.label} first" + (" for each workload" if len(study.cases) > 1 else "")
    if len(study.swept) == 1 and study.data.kind == "sweep":
        place = {value: index for index, value in enumerate(study.swept[0].values)}
        order = sorted(shown, key=lambda point: place.get(point.settings.get(study.swept[0].key, ""), -1))
        sorted_by = f"in the order of {clean(study.swept[0].key)}"
    blocks: list[Block] = []
    if not order:
        return Section("points", "Settings", [Text("No setting has a measured figure.")])
    blocks.append(_table(study, order[:_MOST_POINTS], sorted_by))
    if len(order) > _MOST_POINTS:
        rest = order[_MOST_POINTS:]
        blocks.append(Folded(f"{len(rest)} further settings", [_table(study, rest, sorted_by, note=False)]))
    return Section("points", "Settings", blocks)


def _table(study: StudyView, points: list[PointTrials], sorted_by: str, *, note: bool = True) -> Table:
    metrics = [metric for metric in study.metrics if metric.key not in _APART]
    with_default = study.default_number in study.scores
    axis_heads = [_axis_head(study, axis) for axis in study.axes]
    heads = ["<<", *axis_heads, "runs", *_heads(study, metrics[0], True)]
    heads += ["over default"] if with_default else []
    heads += [name for metric in metrics[1:] for name in _heads(study, metric, False)]
    rows, emphasis = [], []
    for point in points:
        done, total = sum(1 for trial in point.trials if not trial.failed), len(point.trials)
        row = [_mark(study, point)]
        values = [point.settings.get(axis.key, NOT_APPLICABLE) for axis in study.axes]
        row += [UNKNOWN if value == NOT_APPLICABLE else clean(value) for value in values]
        row.append(str(done) if done == total else f"{done} of {total}")
        row += _cells(point.spreads.get(metrics[0].key), metrics[0], study.repeated)
        row += [gain_text(study, point)] if with_default else []
        row += [cell for metric in metrics[1:] for cell in _cells(point.spreads.get(metric.key), metric, False)]
        rows.append(row)
        emphasis.append(point.number in study.best)
    return Table("", tuple(heads), rows, _caption(study, metrics, sorted_by) if note else "", emphasis=emphasis)


def _axis_head(study: StudyView, axis: Axis) -> str:
    """Numbers to the right, words to the left, long texts in several lines."""
    longest = max((len(value) for value in axis.values), default=0)
    kind = "" if all(magnitude(value) is not None for value in axis.values) else "<<" if longest <= 28 else "<"
    return f"{kind}{study.names[axis.key]}"


def _heads(study: StudyView, metric: Metric, spread: bool) -> list[str]:
    unit = f" ({clean(metric.unit)})" if metric.unit not in ("", *NUMBER_UNITS) else ""
    name = f"{clean(metric.label)}{unit}"
    return [name, "smallest to largest"] if spread and study.repeated else [name]


def _cells(spread: Spread | None, metric: Metric, with_range: bool) -> list[str]:
    if spread is None:
        return [UNKNOWN, UNKNOWN] if with_range else [UNKNOWN]
    median = column_text(spread.median, metric.unit)
    if not with_range:
        return [median]
    return [median, span_text(spread.low, spread.high, metric.unit) if spread.count > 1 else UNKNOWN]


def _mark(study: StudyView, point: PointTrials) -> str:
    marks = []
    case = study.case_of(point)
    if point.number in study.best:
        marks.append("best")
    elif study.repeated and case is not None and point.number in case.leaders and len(case.leaders) < case.count:
        marks.append("first" if point.number == case.leaders[0] else "as good")
    if point.number == study.default_number:
        marks.append("default")
    if study.data.recommended == point.number:
        marks.append("recommended")
    return ", ".join(marks)


def _caption(study: StudyView, metrics: list[Metric], sorted_by: str) -> str:
    text = f"{'Medians of the repeats of a setting' if study.repeated else 'One run of each setting'}, {sorted_by}."
    if study.repeated:
        text += (
            " A setting is marked “best” only if it differs beyond noise from every other setting: the ranges "
            "from smallest to largest value do not overlap, and the medians differ by more than the scatter of "
            "all repeats explains (Student's t, 5 %). Otherwise “first” marks the best median, and “as good” "
            "marks settings that do not differ from it beyond noise."
        )
    else:
        text += " No setting is marked as best, because the noise is unknown."
    if study.default_number in study.scores:
        text += " Over default: ratio to the median of the default, above 1 if better"
        text += "; in brackets where noise could explain it, or a setting ran once." if study.repeated else "."
    words = (
        f"{clean(metric.label)} ({clean(metric.key)}) = {clean(metric.definition)}."
        for metric in metrics
        if metric.definition
    )
    return f"{text} {' '.join(words)}"


def failed_section(study: StudyView) -> Section | None:
    """The trials that failed and why; none where none did."""
    failed = [trial for trial in study.data.trials if trial.failed]
    if not failed:
        return None
    rows = [
        [
            clean(study.label(dict(trial.values))),
            str(trial.repeat),
            str(trial.exit_code),
            clean(trial.error or "") or "no reason was recorded",
            clean(trial.directory) or UNKNOWN,
        ]
        for trial in failed[:_MOST_TRIALS]
    ]
    heads = ("<<setting", "repeat", "exit code", "<error", "<<run directory")
    note = (
        "Exit codes: 1 failed, 2 bad configuration, 3 a precondition fails, 4 a threshold was missed; negative: "
        "ended by that signal."
    )
    return Section("failed", "Failed trials", [Table("", heads, rows, note)])


def trial_section(study: StudyView) -> Section:
    """Builds the folded table of all trials in the order of time."""
    metrics = study.metrics[:6]
    heads = (
        "trial",
        "<<setting",
        "repeat",
        "start",
        "took",
        *(clean(metric.label) for metric in metrics),
        "<<cache",
        "<<run",
    )
    rows = [
        _trial_row(study, index, trial, metrics)
        for index, trial in enumerate(study.data.trials[:_MOST_TRIALS], start=1)
    ]
    left = len(study.data.trials) - len(rows)
    note = "Start: seconds after the start of the first trial." + (
        f" {left} later trials are not shown." if left > 0 else ""
    )
    table = Table("", heads, rows, note)
    return Section("trials", "All trials", [Folded(f"{len(study.data.trials)} trials in the order of time", [table])])


def _trial_row(study: StudyView, index: int, trial: Trial, metrics: tuple[Metric, ...]) -> list[str]:
    figures = [
        "failed" if trial.failed and order == 0 else UNKNOWN if value is None else text_of(value, metric.unit)
        for order, metric in enumerate(metrics)
        for value in [trial.figures.get(metric.key)]
    ]
    started = study.started_s(trial)
    return [
        str(index),
        study.label(dict(trial.values)),
        str(trial.repeat),
        UNKNOWN if started is None else format_duration(started),
        NOT_MEASURED if trial.wall_s is None else format_duration(trial.wall_s),
        *figures,
        clean(trial.cache) or UNKNOWN,
        clean(trial.directory) or UNKNOWN,
    ]
