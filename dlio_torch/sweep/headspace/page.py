"""The HTML page of headspace, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dlio_torch.report.html.study.data import AU, FETCH, STEP, THROUGHPUT, Code, Ladder, Metric, StudyData, Trial
from dlio_torch.report.html.study.data import Axis as PageAxis
from dlio_torch.report.html.study.data import Rung as PageRung
from dlio_torch.report.html.study.report import write_study
from dlio_torch.rundir import RunDir
from dlio_torch.sweep import trial as sweep_trial
from dlio_torch.sweep.headspace.gains import HOW, Gain
from dlio_torch.sweep.headspace.ladder import Headspace
from dlio_torch.sweep.headspace.results import Measured
from dlio_torch.sweep.headspace.rungs import CONFIGURED, LADDER
from dlio_torch.sweep.resolve import Resolved
from dlio_torch.sweep.table import points_table, trials_table, write_tables
from dlio_torch.units import format_duration

_STEP = Metric(
    STEP.key, "time of a step", STEP.unit, STEP.better, "elapsed time / steps, the starts of epochs included"
)
_HOW = (
    "Every rung is a run in processes of its own, without one more cost than the rung above; costs that overlap show "
    "with the last of them. Samples that are replayed are copied into the fresh memory of each batch; batches that are "
    "replayed are handed over by reference, without any memory traffic. How many times as good a rung is, is the "
    f"{HOW}; so it is not quite the ratio of the medians shown."
)


def write_page(found: Headspace, resolved: Sequence[Resolved]) -> Path:
    """Write tables and ``report.html``; returns the page.

    Raises:
        MissingPackageError: the extra ``report`` is not installed; the tables are there then.
        PreconditionError: a file cannot be written.
    """
    axes = found.study.axes
    trials = trials_table(found.trials, axes)
    points = points_table(found.trials, axes, [one.point for one in resolved])
    missing = write_tables(found.directory, trials, points, axes)
    begin = datetime.fromisoformat(found.trials[0].started)
    ladder = [one for one in found.rungs if one.rung.name in LADDER]
    titles = {one.rung.name: one.rung.title for one in found.rungs}
    data = StudyData(
        kind="headspace",
        title=found.study.title,
        path=found.directory,
        axes=tuple(PageAxis(one.key, tuple(titles[name] for name in one.values), titles[CONFIGURED]) for one in axes),
        trials=tuple(_trial(one, begin, titles) for one in found.trials),
        description=found.study.description,
        answer=found.words[0],
        metrics=(THROUGHPUT, AU, FETCH, STEP),
        settings=found.study.settings,
        scaled=found.study.scaled,
        planned=max(len(resolved) * found.study.repeats, len(found.trials)),
        ranks=found.study.ranks,
        missing=(*missing, *(f"{one.rung.title}: {one.why}." for one in found.rungs if one.why)),
        environment=_environment(found),
        config=(Code("study.yaml", (found.directory / "study.yaml").read_text(encoding="utf-8")),),
        ladder=Ladder(_STEP, tuple(map(_rung, ladder)), found.words[1:], _HOW),
    )
    return write_study(data, found.directory / "report.html")


def _rung(one: Measured) -> PageRung:
    parts = {} if one.step is None else {name: share * one.step.median for name, share in one.shares.items()}
    notes = [one.why or one.note, _of(one.own)]
    return PageRung(
        one.rung.title,
        one.rung.left if one.rung.removed else "",
        one.step,
        one.step,
        "; ".join(note for note in notes if note),
        {name: seconds for name, seconds in parts.items() if seconds > 0},
        over_first=None if one.gain is None else one.gain.ratio,
        over_above=None if one.own is None else one.own.ratio,
    )


def _of(gain: Gain | None) -> str:
    if gain is None:
        return ""
    ends = "" if gain.interval_s is None else " ({:.3g} to {:.3g} ms)".format(*(1e3 * end for end in gain.interval_s))
    doubt = "" if gain.beyond_noise else ", within noise"
    return f"{'-' if gain.seconds < 0 else ''}{format_duration(abs(gain.seconds))} of a step{ends}{doubt}"


def _trial(one: sweep_trial.Trial, begin: datetime, titles: Mapping[str, str]) -> Trial:
    return Trial(
        one.point,
        one.repeat,
        {key: titles[name] for key, name in one.values},
        dict(one.figures),
        failed=one.status == "failed",
        error=one.error or "",
        exit_code=one.exit_code,
        started_s=(datetime.fromisoformat(one.started) - begin).total_seconds(),
        wall_s=one.figures.get("trial.wall_s"),
        directory=one.directory,
        cache=one.cache,
        warnings=one.warnings,
    )


def _environment(found: Headspace) -> Any:
    for one in found.trials:
        if one.status == "done" and one.directory:
            run = RunDir(found.directory / one.directory)
            return run.read_json(run.environment)
    return None
