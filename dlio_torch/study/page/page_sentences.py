"""Sentences of a study's page: the answer, the effect of each option, and warnings."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from dlio_torch.analysis.cache import WARM
from dlio_torch.report.html.theme import clean
from dlio_torch.study.model import Axis, Trial
from dlio_torch.study.page.marks import spoken
from dlio_torch.study.page.point_trials import Case, PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.values import counted
from dlio_torch.units import percent

_MOST_NAMED = 4
_VERDICTS = {
    "agrees": ("agrees", "agree"),
    "partly": ("agrees in part", "agree in part"),
    "contradicts": ("is contradicted", "are contradicted"),
    "within noise": ("lies within noise", "lie within noise"),
    "cannot be told": ("cannot be told", "cannot be told"),
    "not measured": ("was not measured", "were not measured"),
}
"""Verdicts on published statements in a sentence: singular and plural."""
_NUMBER = re.compile(r"\d+(\.\d+)?( [KMGTP]?i?B\b)?")


def answer(study: StudyView) -> str:
    """Returns the sentence that answers the study's question, and a second sentence about limitations."""
    data = study.data
    if data.answer:
        return data.answer
    if not data.trials:
        return "No trial has run yet."
    if not study.scores:
        errors = Counter(trial.error for trial in data.trials if trial.failed)
        subject = f": {errors.most_common(1)[0][0]}" if errors else ""
        return f"None of {counted(len(data.trials), 'trial')} gave a figure{subject}."
    return " ".join(part for part in (_ranking(study), _agreement(study), _from_memory(study)) if part)


def _ranking(study: StudyView) -> str:
    words = [_first(study, case) for case in study.cases]
    if study.repeated or len(study.scores) == 1:
        return " ".join(words)
    return f"{' '.join(words)} Each setting ran once, so the noise is unknown; set repeats=3 to measure the noise."


def _first(study: StudyView, case: Case) -> str:
    """Returns the sentence on the best setting of a workload, as far as noise permits."""
    first = study.by_number[case.leaders[0]]
    swept = {key: value for key, value in first.settings.items() if key not in case.fixed}
    name = study.label(swept) or "The only setting"
    if case.fixed:
        name = f"{study.label(case.fixed)}: {name}"
    value = spoken(study.scores[first.number], study.objective)
    metric = clean(study.objective.label)
    if case.count == 1:
        return f"{name}: {metric} {value}."
    extreme = "highest" if study.better == "higher" else "lowest"
    if not study.repeated:
        return f"{name} has the {extreme} {metric}: {value}{_against_default(study, first)}."
    if case.best is not None:
        return f"{name} is best beyond noise: {metric} {value}{_against_default(study, first)}."
    others = len(case.leaders) - 1
    alike = f"{others} other{'s' if others > 1 else ''} of {case.count} settings"
    if others == case.count - 1:
        alike = "all other settings"
    return (
        f"{name} has the {extreme} median {metric}, {value}{_against_default(study, first)}; {alike} "
        f"{'is' if others == 1 else 'are'} as good within the noise of the repeats."
    )


def _against_default(study: StudyView, first: PointTrials) -> str:
    default = study.default
    if default is None or default.number not in study.scores:
        return ""
    if default.number == first.number:
        return ", and is the default"
    ratio = f", {times(study.gain(first, default))} the default's"
    return f"{ratio} but within noise" if study.repeated and not study.differ(first, default) else ratio


def _agreement(study: StudyView) -> str:
    """Returns the sentence on the published statements that the measurements confirm."""
    verdicts = Counter(statement.verdict for statement in study.data.statements)
    if not verdicts:
        return ""
    total = sum(verdicts.values())
    parts = []
    for verdict, count in verdicts.most_common():
        single, many = _VERDICTS.get(verdict, (clean(verdict), clean(verdict)))
        parts.append(f"{count} {single if count == 1 else many}")
    return f"{counted(total, 'published statement')} checked: {', '.join(parts)}."


def _from_memory(study: StudyView) -> str:
    shares = study.device_shares
    if not shares or min(shares) > WARM:
        return ""
    served = sum(1 for share in shares if share <= WARM)
    if served == len(shares):
        return "The page cache served the reads of every setting: the study compares loaders, not storage."
    return (
        f"The page cache served the reads of {served} of {len(shares)} settings: figures of these settings do "
        "not depend on the storage."
    )


def status(study: StudyView) -> str:
    """Returns the status line of the figures of a study."""
    shares = study.device_shares
    if not shares:
        return "Exact, every finished trial; state of the page cache not measured."
    low, high = percent(min(shares)), percent(max(shares))
    span = low if low == high else f"{low} to {high}"
    return f"Exact, every finished trial; {span} of the bytes read came from the device."


def effect_words(study: StudyView, axis: Axis) -> list[str]:
    """Returns sentences on the effect of an option, and on whether its best value depends on other options."""
    name, favourites = study.names[axis.key], study.favourites(axis)
    ratio = study.effect(axis)
    if ratio is None or not favourites:
        return []
    others = len(study.swept) > 1
    middle = " (median over the settings of the other options)" if others and len(favourites) > 1 else ""
    words = [f"The best value of {name} is {times(ratio)} as good as the worst{middle}."]
    if not study.repeated:
        return words
    beaten = {value for context, values in favourites for value in context.points if value not in values}
    ran = Counter(value for context, _ in favourites for value in context.points)
    common = [value for value in axis.values if value not in beaten and 2 * ran[value] > len(favourites)]
    missing = sum(1 for context, _ in favourites for value in common[:1] if value not in context.points)
    location = " at every setting of the other options" if others and len(favourites) > 1 else ""
    if missing and len(common) == 1:
        location = (
            f" at every setting of the other options at which this value ran; the value did not run at {missing} of "
            f"{len(favourites)} settings"
        )
    if not beaten:
        anywhere = location.replace("every", "any")
        return [f"No value of {name} differs from the best beyond noise{anywhere}."]
    if len(common) == 1 and all(len(values) == 1 for _, values in favourites):
        words.append(f"{name}={clean(common[0])} is best beyond noise{location}.")
    elif common:
        names = _listed([clean(value) for value in common])
        words.append(f"{name}={names} {'is' if len(common) == 1 else 'are'} best or as good as the best{location}.")
    else:
        words.append(_interaction(study, axis))
    return words


def _interaction(study: StudyView, axis: Axis) -> str:
    """Returns the sentence on an interaction: the best value at each setting of the other options."""
    name = study.names[axis.key]
    wins: dict[tuple[str, ...], list[str]] = {}
    for context, values in study.favourites(axis):
        wins.setdefault(values, []).append(study.label(context.fixed))
    parts = [
        f"{_listed([clean(value) for value in values])} at {win[0]}"
        + (f" and {len(win) - 1} more" if len(win) > 1 else "")
        for values, win in sorted(wins.items(), key=lambda item: -len(item[1]))[:_MOST_NAMED]
    ]
    left = len(wins) - len(parts)
    more = f"; {left} more cases" if left > 0 else ""
    return f"The options interact: the best {name} depends on the others beyond noise: {'; '.join(parts)}{more}."


def warnings(study: StudyView) -> list[str]:
    """Returns the warnings: scale, warnings of the study and of trials, failures, missing trials."""
    result = (
        [f"The scale changed these options of the published experiment: {'; '.join(study.data.scaled)}."]
        if study.data.scaled
        else []
    )
    result += study.data.warnings
    total = len(study.data.trials)
    for text, count in warned(study.data.trials).values():
        alike = "; the numbers are of one of these trials" if count > 1 and _NUMBER.search(text) else ""
        result.append(f"{text} ({_of(count, total, 'trial')}{alike})")
    failed = sum(1 for trial in study.data.trials if trial.failed)
    if failed:
        result.append(f"{_of(failed, total, 'trial')} failed; see the section Failed trials.")
    planned = study.data.planned
    if planned is not None and total < planned:
        result.append(f"The study is not finished: {total} of {planned} trials are recorded.")
    return [*result, *study.data.missing]


def warned(trials: Sequence[Trial]) -> dict[str, tuple[str, int]]:
    """Returns the warnings of trials, most frequent first, each with an example and the number of its trials.

    Warnings that differ in their numbers only are one; the keys are what they have in common.
    """
    examples: dict[str, str] = {}
    counted: Counter[str] = Counter()
    for trial in trials:
        local = {_NUMBER.sub("#", text): text for text in trial.warnings}
        for kind, text in local.items():
            examples.setdefault(kind, text)
            counted[kind] += 1
    return {kind: (examples[kind], count) for kind, count in counted.most_common()}


def times(ratio: float) -> str:
    """Formats a ratio: ``2.31 times``."""
    return "an unknown multiple of" if not math.isfinite(ratio) else f"{ratio:.3g} times"


def gain_text(study: StudyView, point: PointTrials) -> str:
    """Returns the ratio of a point to the default for a table, in brackets if it is within noise."""
    default = study.default
    if default is None or default.number not in study.scores or point.number not in study.scores:
        return ""
    if point.number == default.number:
        return "1"
    ratio = study.gain(point, default)
    if not math.isfinite(ratio):
        return ""
    text = f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
    return text if study.differ(point, default) or not study.repeated else f"({text})"


def _listed(values: list[str]) -> str:
    shown = values[:_MOST_NAMED]
    text = ", ".join(shown[:-1]) + (" or " if len(shown) > 1 else "") + shown[-1]
    return text if len(values) == len(shown) else f"{text} (of {len(values)})"


def _of(number: int, total: int, noun: str) -> str:
    return f"all {counted(total, noun)}" if number == total and total > 1 else f"{number} of {counted(total, noun)}"
