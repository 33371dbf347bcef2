"""Sections of a search and of a ladder: recommended settings, course of the search, possible gain per cost."""

from __future__ import annotations

from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import (
    NOT_MEASURED,
    UNKNOWN,
    Absent,
    Block,
    Facts,
    Figure,
    Listing,
    Section,
    Table,
    Text,
)
from dlio_torch.report.html.run.section_setup import clean_lines
from dlio_torch.report.html.theme import BLUE, clean
from dlio_torch.report.run_verdict import percent
from dlio_torch.study.metrics import Metric
from dlio_torch.study.page.findings import LadderSummary
from dlio_torch.study.page.ladder_figure import ladder_figure
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.page.search_figure import confirmation_figure, history_figure, paired_gains, slice_figure
from dlio_torch.study.page.section_axes import status
from dlio_torch.study.values import text_of


def recommended_section(study: StudyView) -> Section | None:
    """Builds the section with the recommended settings in every form, and the confirmation of their gain."""
    given, result = study.data.recommendation, study.data.confirmation
    if given is None and result is None:
        return None
    blocks: list[Block] = []
    if given is not None:
        if given.settings:
            defaults = {axis.key: axis.default for axis in study.axes}
            rows = [
                [clean(key), clean(value), "" if defaults.get(key) is None else clean(str(defaults[key]))]
                for key, value in given.settings
            ]
            blocks.append(Table("", ("<<option", "<<recommended", "<<default"), rows))
        if given.note:
            blocks.append(Text(clean(given.note)))
        blocks += [Listing(clean(block.title), clean_lines(block.text)) for block in given.blocks]
    if result is None:
        blocks.append(Absent("The gain was not confirmed by paired runs."))
    elif result.gain.pairs:
        metric = _metric(study, result.metric)
        interval = NOT_MEASURED
        if result.gain.low is not None and result.gain.high is not None:
            interval = f"{percent(result.gain.low)} to {percent(result.gain.high)}"
        better = sum(1 for value in paired_gains(result, metric) if value > 0)
        blocks.append(
            Facts(
                [
                    (f"gain in {clean(metric.label)}", percent(result.gain.gain)),
                    ("uncertainty interval of the gain", interval),
                    ("pairs in which the best setting was better", f"{better} of {len(result.gain.pairs)}"),
                ]
            )
        )
        svg = confirmation_figure(result, metric, "confirmation")
        caption = f"Default and best setting found, run one after the other. {clean(result.method)}".strip()
        caption = caption if caption.endswith(".") else f"{caption}."
        blocks.append(
            Figure(svg, "Confirmation of the gain", caption, "Exact values; the interval is estimated from them.")
        )
    return Section("recommended", "Recommended settings", blocks)


def _metric(study: StudyView, key: str) -> Metric:
    return next((metric for metric in study.data.metrics if metric.key == key), study.objective)


def search_section(study: StudyView) -> Section | None:
    """Builds the section on the course of the search."""
    search = study.data.search
    if search is None:
        return None
    finished = sum(1 for trial in study.data.trials if not trial.failed)
    facts = [("trials", f"{finished} finished, {len(study.data.trials) - finished} failed")]
    facts += [("settings tried", str(len(study.points)))]
    if search.grid_size:
        share = f"{percent(len(study.points) / search.grid_size)} of {search.grid_size}"
        facts.append(("of the full grid", share))
    for label, value in (
        ("settings drawn by", search.sampler),
        ("budget", search.budget),
        ("ended because", search.stopped),
    ):
        if value:
            facts.append((label, clean(value)))
    blocks: list[Block] = [Facts(facts)]
    if study.scores:
        caption = (
            f"Each mark is the {study.objective.label} of one trial; the line is the best value of a single trial so "
            "far, noise included, so it may lie above what the confirmation finds."
        )
        blocks.append(Figure(history_figure(study, "history"), "The search over time", caption, status(study)))
        if study.swept:
            caption = (
                "Each mark is one trial at a drawn value of the option, with various values of the other "
                "options; later trials are darker"
            )
            caption += "; a ring is the default." if study.default is not None else "."
            blocks.append(Figure(slice_figure(study, "slices"), "Drawn values of each option", caption, status(study)))
    if search.importance:
        ordered = sorted(search.importance.items(), key=lambda item: -item[1])[:20]
        svg = bar_figure(
            [clean(key) for key, _ in ordered],
            {"importance": [100 * max(value, 0.0) for _, value in ordered]},
            {"importance": BLUE},
            axis=f"share of the scatter of {study.objective.label} that the option explains (%)",
            name="importance",
            description="Importance of each option",
            texts={"importance": [percent(value) for _, value in ordered]},
        )
        caption = clean(search.importance_how) or "Computed from the trials."
        blocks.append(
            Figure(
                svg,
                "Importance of the options",
                caption if caption.endswith(".") else f"{caption}.",
                "Estimated from the trials.",
            )
        )
    else:
        blocks.append(Absent("The importance of options was not computed (too few trials, or a single option)."))
    return Section("search", "The search", blocks)


def ladder_section(study: StudyView) -> Section | None:
    """Builds the section on the maximum gain of removing each cost."""
    ladder = study.data.ladder
    if ladder is None:
        return None
    title = "Maximum gain of removing each cost"
    measured = [effect for effect in ladder.effects if effect.step is not None]
    if not measured:
        return Section("ladder", title, [Absent("No rung of the ladder was measured.")])
    # The first two stand at the top of the page.
    sentence = ladder.sentences if study.data.answer else ladder.sentences[2:]
    blocks: list[Block] = [Text(clean(" ".join(sentence)))] if sentence else []
    caption = clean(ladder.method) or "Every rung removes one more cost from the run above it."
    caption = caption if caption.endswith(".") else f"{caption}."
    caption += f" {clean(ladder.metric.label)} = {clean(ladder.metric.definition)}." if ladder.metric.definition else ""
    caption += " Bars are medians, the black line reaches from the smallest to the largest repeat."
    blocks.append(Figure(ladder_figure(ladder, "ladder"), title, caption, "Exact, every finished run of each rung."))
    blocks.append(_rungs(ladder))
    return Section("ladder", title, blocks)


def _rungs(ladder: LadderSummary) -> Table:
    rows: list[list[str]] = []
    unit = ladder.metric.unit
    for effect in ladder.effects:
        step, left = effect.step, effect.rung.left if effect.rung.removed else ""
        row = [clean(effect.rung.title), clean(left) or UNKNOWN]
        if step is None:
            row += [NOT_MEASURED, UNKNOWN, UNKNOWN, UNKNOWN]
        else:
            row += [
                text_of(step.median, unit),
                f"{text_of(step.low, unit)} to {text_of(step.high, unit)}" if step.count > 1 else UNKNOWN,
                *(UNKNOWN if gain is None else f"{gain.ratio:.2f}" for gain in (effect.cost, effect.gain)),
            ]
        rows.append([*row, clean(effect.remark)])
    heads = ["<<rung", "<<rung", clean(ladder.metric.label), "smallest to largest", "over the rung above"]
    heads += ["over the first", "<remark"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    note = (
        "Over: ratio of runs of the same round, above 1 if better. The gain of a rung is the maximum gain from "
        "removing this cost."
    )
    return Table("Rungs", tuple(heads), rows, note)
