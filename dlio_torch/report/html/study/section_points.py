"""The sections that every study has: key figures, the table of its settings, failed trials, all trials."""

from __future__ import annotations

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.blocks import NOT_MEASURED, UNKNOWN, Block, Folded, Notes, Section, Table, Text, Tiles
from dlio_torch.report.html.study.data import (
    DEVICE_SHARE,
    NO_MEANING,
    STORAGE_LIMIT,
    STORAGE_RATE,
    STORAGE_SHARE,
    Axis,
    Metric,
    Trial,
)
from dlio_torch.report.html.study.findings import Ladder
from dlio_torch.report.html.study.points import Point, Study
from dlio_torch.report.html.study.values import NUMBER_UNITS, digits, number, span_text, text_of
from dlio_torch.report.html.study.words import gain_text, times, warnings
from dlio_torch.report.html.theme import clean
from dlio_torch.report.verdict import percent
from dlio_torch.units import format_duration

_MOST_CASES = 4
_MOST_NOTES = 14
_MOST_POINTS = 48
_MOST_TRIALS = 1500
_APART = (STORAGE_RATE.key, STORAGE_LIMIT.key, STORAGE_SHARE.key)  # shown where the storage is


def overview(study: Study, description: str = "") -> Section:
    """What the study asks, where that takes more than a line; key figures; what the reader must know."""
    blocks: list[Block] = [Text(clean(description))] if description else []
    blocks += [Tiles(tiles)] if (tiles := _tiles(study)) else []
    notes = [clean(note) for note in warnings(study)]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"and {len(notes) - _MOST_NOTES} more"]
    if notes:
        blocks.append(Notes(notes))
    return Section("overview", "", blocks)


def _tiles(study: Study) -> list[tuple[str, str, str]]:
    tiles: list[tuple[str, str, str]] = []
    if study.data.ladder is not None:
        tiles += _ladder_tiles(study.data.ladder)
    # A search does not choose by the best median, which may be that of a single lucky run.
    chosen = study.data.search.chosen if study.data.search is not None else None
    for case in study.cases[:_MOST_CASES] if study.data.ladder is None else ():
        first = study.by_number[chosen if chosen in study.scores else case.leaders[0]]
        best = "best" if case.best is not None or not study.repeated else "best median"
        value, unit = _tile(study, first)
        what = f"{best} {study.objective.label}" if chosen is None else f"{study.objective.label} of the chosen setting"
        tiles.append((value, f"{what}{unit}", study.label(first.settings)))
        default = study.default
        own = default is not None and default.number in study.scores and study.case_of(default) is case
        if default is not None and own and default.number != first.number:
            value, unit = _tile(study, default)
            tiles.append((value, f"of the default{unit}", study.label(default.settings)))
            noise = "beyond noise" if study.differ(first, default) else "within noise"
            noise = noise if study.repeated else "noise not measured"
            if study.data.confirmation is None:
                tiles.append((f"{times(study.gain(first, default))}", "best over default", noise))
    sure = study.data.confirmation
    if sure is not None:
        interval = "one pair" if sure.low is None or sure.high is None else span_text(1 + sure.low, 1 + sure.high, "")
        gained = sure.low is None or sure.low > 0
        who, how = ("recommended", "confirmed") if gained else ("chosen", "within noise")
        tiles.append((times(1 + sure.gain), f"{who} over default", f"{how}: {interval}"))
    if study.data.trials:
        done = sum(1 for trial in study.data.trials if not trial.failed)
        failed = len(study.data.trials) - done
        remark = f"{len(study.points)} settings" + (
            f", {failed} trial{'' if failed == 1 else 's'} failed" if failed else ""
        )
        tiles.append((str(done), "finished trials", remark))
        spent = [trial.wall_s for trial in study.data.trials if trial.wall_s is not None]
        if spent:
            tiles.append(
                (format_duration(sum(spent)), "time in trials", f"{format_duration(sum(spent) / len(spent))} each")
            )
    shares = [one for point in study.points if (one := point.spreads.get(DEVICE_SHARE.key))]
    if shares:
        least = percent(min(one.median for one in shares))
        tiles.append((least, "least share from the device", "of the bytes read; the rest came from memory"))
    return tiles


def _ladder_tiles(ladder: Ladder) -> list[tuple[str, str, str]]:
    """The ends of a ladder."""
    known = [(rung, rung.value) for rung in ladder.rungs if rung.value is not None]
    if len(known) < 2:
        return []
    (top, first), (foot, last) = known[0], known[-1]
    label, unit = ladder.metric.label, ladder.metric.unit
    tiles = [(text_of(first.median, unit), label, top.name), (text_of(last.median, unit), label, foot.name)]
    ratio = foot.over_first
    return tiles if ratio is None else [*tiles, (times(ratio), "as good at the most", "the last rung over the first")]


def _tile(study: Study, point: Point) -> tuple[str, str]:
    """A point's objective, and its unit where that stands with the label."""
    unit = study.objective.unit
    if unit in NUMBER_UNITS:
        return text_of(study.scores[point.number].median, unit), ""
    return digits(study.scores[point.number].median), f", {unit}"


def point_section(study: Study) -> Section:
    """The table of settings."""
    shown = [point for point in study.points if point.number in study.scores]
    # Over one option the eye follows its values; over several it looks for the best.
    order = list(study.ranked)
    sorted_by = f"best {study.objective.label} first" + (" for each workload" if len(study.cases) > 1 else "")
    if len(study.swept) == 1 and study.data.kind == "sweep":
        place = {value: at for at, value in enumerate(study.swept[0].values)}
        order = sorted(shown, key=lambda one: place.get(one.settings.get(study.swept[0].key, ""), -1))
        sorted_by = f"in the order of {clean(study.swept[0].key)}"
    blocks: list[Block] = []
    if not order:
        return Section("points", "Settings", [Text("No setting has a figure.")])
    blocks.append(_table(study, order[:_MOST_POINTS], sorted_by))
    if len(order) > _MOST_POINTS:
        rest = order[_MOST_POINTS:]
        blocks.append(Folded(f"{len(rest)} further settings", [_table(study, rest, sorted_by, note=False)]))
    return Section("points", "Settings", blocks)


def _table(study: Study, points: list[Point], sorted_by: str, *, note: bool = True) -> Table:
    metrics = [one for one in study.metrics if one.key not in _APART]
    with_default = study.default is not None and study.default.number in study.scores
    axis_heads = [_axis_head(study, axis) for axis in study.axes]
    heads = ["<<", *axis_heads, "runs", *_heads(study, metrics[0], True)]
    heads += ["over default"] if with_default else []
    heads += [name for metric in metrics[1:] for name in _heads(study, metric, False)]
    rows, emphasis = [], []
    for point in points:
        done, total = sum(1 for trial in point.trials if not trial.failed), len(point.trials)
        row = [_mark(study, point)]
        values = [point.settings.get(axis.key, NO_MEANING) for axis in study.axes]
        row += [UNKNOWN if value == NO_MEANING else clean(value) for value in values]
        row.append(str(done) if done == total else f"{done} of {total}")
        row += _cells(point.spreads.get(metrics[0].key), metrics[0], study.repeated)
        row += [gain_text(study, point)] if with_default else []
        row += [cell for one in metrics[1:] for cell in _cells(point.spreads.get(one.key), one, False)]
        rows.append(row)
        emphasis.append(point.number in study.best)
    return Table("", tuple(heads), rows, _how(study, metrics, sorted_by) if note else "", emphasis=emphasis)


def _axis_head(study: Study, axis: Axis) -> str:
    """Numbers to the right, words to the left, long texts in several lines."""
    longest = max((len(value) for value in axis.values), default=0)
    kind = "" if all(number(value) is not None for value in axis.values) else "<<" if longest <= 28 else "<"
    return f"{kind}{study.names[axis.key]}"


def _heads(study: Study, metric: Metric, spread: bool) -> list[str]:
    unit = f" ({clean(metric.unit)})" if metric.unit not in ("", *NUMBER_UNITS) else ""
    name = f"{clean(metric.label)}{unit}"
    return [name, "smallest to largest"] if spread and study.repeated else [name]


def _cells(one: Spread | None, metric: Metric, with_range: bool) -> list[str]:
    def text(value: float) -> str:
        plain = metric.unit in NUMBER_UNITS
        return text_of(value, metric.unit) if plain else digits(value)

    if one is None:
        return [UNKNOWN, UNKNOWN] if with_range else [UNKNOWN]
    if not with_range:
        return [text(one.median)]
    return [text(one.median), span_text(one.low, one.high, metric.unit) if one.count > 1 else UNKNOWN]


def _mark(study: Study, point: Point) -> str:
    marks = []
    case = study.case_of(point)
    if point.number in study.best:
        marks.append("best")
    elif study.repeated and case is not None and point.number in case.leaders and len(case.leaders) < case.count:
        marks.append("first" if point.number == case.leaders[0] else "as good")
    if study.default is not None and point.number == study.default.number:
        marks.append("default")
    given = study.data.recommendation
    if given is not None and given.point == point.number:
        marks.append("recommended")
    return ", ".join(marks)


def _how(study: Study, metrics: list[Metric], sorted_by: str) -> str:
    text = f"{'Medians of the repeats of a setting' if study.repeated else 'One run of each setting'}, {sorted_by}."
    if study.repeated:
        text += (
            " “best” is marked only where it differs beyond noise from every other setting: their smallest to largest "
            "values do not touch its own, and the medians differ by more than the scatter of all repeats explains "
            "(Student's t, 5 %). Otherwise “first” is the best median, and “as good” are those that do not differ so "
            "from it."
        )
    else:
        text += " Nothing is marked as best, because the noise is not known."
    if study.default is not None and study.default.number in study.scores:
        text += " Over default: how many times as good as the default's median"
        text += "; in brackets where noise could explain it, or a setting ran once." if study.repeated else "."
    words = (f"{clean(one.label)} ({clean(one.key)}) = {clean(one.how)}." for one in metrics if one.how)
    return f"{text} {' '.join(words)}"


def failed_section(study: Study) -> Section | None:
    """The trials that failed and why; none where none did."""
    failed = [trial for trial in study.data.trials if trial.failed]
    if not failed:
        return None
    rows = [
        [
            clean(study.label(trial.settings)),
            str(trial.repeat),
            UNKNOWN if trial.exit_code is None else str(trial.exit_code),
            clean(trial.error) or "no reason was recorded",
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


def trial_section(study: Study) -> Section:
    """Every trial in the order of time, folded."""
    metrics = study.metrics[:6]
    heads = (
        "trial",
        "<<setting",
        "repeat",
        "start",
        "took",
        *(clean(one.label) for one in metrics),
        "<<cache",
        "<<run",
    )
    rows = [_trial_row(study, at, trial, metrics) for at, trial in enumerate(study.data.trials[:_MOST_TRIALS], start=1)]
    left = len(study.data.trials) - len(rows)
    note = "Start: from the start of the first trial." + (f" {left} later trials are left out." if left > 0 else "")
    table = Table("", heads, rows, note)
    return Section("trials", "All trials", [Folded(f"{len(study.data.trials)} trials in the order of time", [table])])


def _trial_row(study: Study, at: int, trial: Trial, metrics: tuple[Metric, ...]) -> list[str]:
    figures = [
        "failed" if trial.failed and order == 0 else UNKNOWN if value is None else text_of(value, one.unit)
        for order, one in enumerate(metrics)
        for value in [trial.figures.get(one.key)]
    ]
    return [
        str(at),
        study.label(trial.settings),
        str(trial.repeat),
        UNKNOWN if trial.started_s is None else format_duration(trial.started_s),
        NOT_MEASURED if trial.wall_s is None else format_duration(trial.wall_s),
        *figures,
        clean(trial.cache) or UNKNOWN,
        clean(trial.directory) or UNKNOWN,
    ]
