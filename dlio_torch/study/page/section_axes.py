"""Sections on the effect of options: a figure per option, pairs of options, and the drift of the machine."""

from __future__ import annotations

from itertools import combinations

from dlio_torch.report.html.page_blocks import Block, Figure, Section, Table, Text
from dlio_torch.report.html.theme import clean
from dlio_torch.report.run_verdict import percent
from dlio_torch.study.metrics import DEVICE_SHARE
from dlio_torch.study.model import NOT_APPLICABLE, Axis
from dlio_torch.study.page.axis_figure import axis_figure
from dlio_torch.study.page.drift_figure import drift, drift_figure
from dlio_torch.study.page.heat_figure import heat_figure
from dlio_torch.study.page.page_sentences import drift_words, effect_words
from dlio_torch.study.page.points import StudyView

_MOST_MAPS = 3
_MOST_AXES = 6


def status(study: StudyView) -> str:
    """Returns the status line of the figures of a study."""
    shares = [share.median for point in study.points if (share := point.spreads.get(DEVICE_SHARE.key))]
    if not shares:
        return "Exact, every finished trial; state of the page cache not measured."
    low, high = percent(min(shares)), percent(max(shares))
    span = low if low == high else f"{low} to {high}"
    return f"Exact, every finished trial; {span} of the bytes read came from the device."


def axis_section(study: StudyView) -> Section | None:
    """Builds a figure for every swept option, largest effect first."""
    axes = _by_effect(study)
    if not study.scores or not axes:
        return None
    blocks: list[Block] = []
    if len(axes) > 1:
        blocks.append(_effect_table(study))
    for number, axis in enumerate(axes[:_MOST_AXES]):
        words = effect_words(study, axis)
        result = axis_figure(study, axis, f"axis-{number}")
        if words and len(axes) == 1:
            blocks.append(Text(" ".join(words)))
        if result is None:
            continue
        hidden = (
            f" {result.hidden} further settings of the other options are only in the table." if result.hidden else ""
        )
        blocks.append(Figure(result.svg, f"Effect of {clean(axis.key)}", f"{result.caption}{hidden}", status(study)))
    left = len(axes) - _MOST_AXES
    if left > 0:
        blocks.append(Text(f"{left} further options with a smaller effect on {study.objective.label} have no figure."))
    return Section("options", "Effect of each option", blocks)


def _by_effect(study: StudyView) -> list[Axis]:
    """The swept options, largest effect first; workloads are not options."""
    return sorted((axis for axis in study.swept if axis.compared), key=lambda axis: -(study.effect(axis) or 0.0))


def _effect_table(study: StudyView) -> Table:
    rows = [
        [
            clean(axis.key),
            clean(", ".join(axis.values)) if len(axis.values) <= 12 else f"{len(axis.values)} values",
            "" if axis.default is None else clean(axis.default),
            "" if (ratio := study.effect(axis)) is None else f"{ratio:.2f}",
            " ".join(effect_words(study, axis)[-1:]),
        ]
        for axis in _by_effect(study)
    ]
    note = (
        f"Best over worst: ratio of the best to the worst median of {study.objective.label} among settings in "
        "which only this option changes; the median of this ratio over all settings of the other options. A "
        "value is called best or as good by the rule of the table of settings, made stricter for the number of "
        "comparisons."
    )
    return Table("", ("<<option", "<values", "<<default", "best over worst", "<effect"), rows, note)


def pair_section(study: StudyView) -> Section | None:
    """Builds a colour map for up to three pairs of options that do not exclude each other."""
    blocks: list[Block] = []
    grid = study.data.kind == "sweep"
    axes = _by_effect(study)[: _MOST_MAPS if grid else None]
    pairs = [pair for pair in combinations(axes, 2) if _meet_anywhere(study, *pair)]
    # A search leaves most pairs untried: the two options that move most are enough.
    most = _MOST_MAPS if grid else 1
    for number, (item, other) in enumerate(pairs):
        if len(blocks) == most:
            break
        across, up = (item, other) if len(item.values) >= len(other.values) else (other, item)
        result = heat_figure(study, across, up, f"pair-{number}")
        if result is None:
            continue
        brighter = "brighter is better" if study.better == "higher" else "brighter (lower) is better"
        caption = f"Median {study.objective.label} of each pair of values; {brighter}"
        caption += ", the best of all settings of the other options" if result.chosen else ""
        caption += "; empty: not measured" if result.empty else ""
        caption += (
            "; a setting in which an option has no meaning is shown at all values of the option"
            if result.spread
            else ""
        )
        caption += "; dashed frame: the default" if study.default is not None else ""
        caption += "; red frame: the best beyond noise" if study.best else ""
        blocks.append(Figure(result.svg, f"{clean(across.key)} against {clean(up.key)}", f"{caption}.", status(study)))
    return Section("pairs", "Options together", blocks) if blocks else None


def _meet_anywhere(study: StudyView, first: Axis, other: Axis) -> bool:
    """Whether any point has a value of both options."""
    return any(
        all(point.settings.get(axis.key, NOT_APPLICABLE) != NOT_APPLICABLE for axis in (first, other))
        for point in study.points
    )


def drift_section(study: StudyView) -> Section | None:
    """Builds the section on the drift of the machine during the study."""
    if len(study.data.trials) < 2:
        return None
    result = drift(study)
    if result is None:
        return Section(
            "drift",
            "Drift of the machine",
            [
                Text(
                    "Not measured: no setting ran more than once, so a slow machine cannot be told from a slow setting."
                )
            ],
        )
    caption = (
        f"Each trial's {study.objective.label} divided by the mean of its setting, less 1; a line is the mean of "
        "all trials of a repeat. Repeats are interleaved: every setting runs once before any setting runs again, "
        "so that drift affects all settings equally."
        if study.data.kind == "sweep"
        else f"Each trial's {study.objective.label} divided by the mean of its setting, less 1."
    )
    blocks: list[Block] = []
    if words := drift_words(result, study):
        blocks.append(Text(words))
    svg = drift_figure(study, result, "drift")
    blocks.append(Figure(svg, "Trials against the mean of their setting", caption, status(study)))
    return Section("drift", "Drift of the machine", blocks)
