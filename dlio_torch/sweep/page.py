"""A study as the data of its page (:mod:`dlio_torch.report.html.study.report`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from dlio_torch.config.compose import compose
from dlio_torch.config.emit import as_dict
from dlio_torch.config.yamlfile import dump_scalar, parse_document
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.report.html.study import data as page
from dlio_torch.report.html.study.metrics import CPU, metric
from dlio_torch.rundir import RunDir
from dlio_torch.sweep.axes import Axis, configured
from dlio_torch.sweep.published import compare as published
from dlio_torch.sweep.published import file as publishedfile
from dlio_torch.sweep.space import Needs
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.study import Study
from dlio_torch.sweep.trial import Trial
from dlio_torch.units import parse_size

_MIB = parse_size("1MiB")


def study_data(store: Store, trials: Sequence[Trial], points: pd.DataFrame, needs: Needs) -> page.StudyData:
    """Everything on the page of a sweep, finished or not.

    Args:
        store: its directory.
        trials: finished and failed ones in the order of time.
        points: of :func:`dlio_torch.sweep.table.points_table`.
        needs: what its points need.
    """
    study = store.study
    defaults = _defaults(study, store.cwd)
    environment = _environment(store, trials)
    told = _published(study, points, needs, environment, trials)
    begin = min((_seconds(trial) for trial in trials if trial.started), default=0.0)
    return page.StudyData(
        kind="sweep",
        title=study.title,
        path=store.path,
        axes=tuple(page.Axis(axis.key, axis.values, defaults.get(axis.key), axis.compared) for axis in study.axes),
        trials=tuple(_trial(trial, begin) for trial in trials),
        description=study.description,
        metrics=_metrics(study),
        objective=study.figures[0],
        settings=study.settings,
        scaled=study.scaled,
        planned=len(points) * study.repeats,
        ranks=study.ranks,
        environment=environment,
        config=(page.Code("study.yaml", store.text()),),
        **told,
    )


def _trial(trial: Trial, begin: float) -> page.Trial:
    rate = trial.figures.get("train.mib_per_s")
    return page.Trial(
        point=trial.point,
        repeat=trial.repeat,
        settings=dict(trial.values),
        figures={**trial.figures, page.RATE.key: None if rate is None else rate * _MIB},
        failed=trial.status == "failed",
        error=trial.error or "",
        exit_code=trial.exit_code,
        started_s=_seconds(trial) - begin if trial.started else None,
        wall_s=trial.figures.get("trial.wall_s"),
        directory=trial.directory,
        cache=trial.cache,
        warnings=trial.warnings,
    )


def _seconds(trial: Trial) -> float:
    return datetime.fromisoformat(trial.started).timestamp()


def _metrics(study: Study) -> tuple[page.Metric, ...]:
    """Those that the study names, the page's own, the CPU time."""
    objective = replace(metric(study.figures[0]), better=study.better)
    named = [objective, *map(metric, study.figures[1:]), *page.METRICS, CPU]
    found: dict[str, page.Metric] = {}
    for one in named:
        found.setdefault(one.key, one)
    return tuple(found.values())


def _defaults(study: Study, cwd: Path) -> dict[str, str]:
    """What each swept option is without the study."""
    try:
        config: Any = as_dict(compose(study.settings, cwd=cwd, world_size=study.ranks).config)
    except ConfigError:  # an option that every point must set
        return {}
    found = {}
    for axis in study.axes:
        value = _value(config, axis)
        if value is not None:
            found[axis.key] = value
    return found


def _value(config: Any, axis: Axis) -> str | None:
    try:
        value = configured(config, axis.key)
    except KeyError:
        return None
    return None if isinstance(value, dict) else dump_scalar(value)


def _environment(store: Store, trials: Sequence[Trial]) -> dict[str, Any] | None:
    for trial in trials:
        directory = store.directory(trial)
        if trial.status == "done" and directory is not None and directory.is_dir():
            run = RunDir(directory)
            try:
                found: dict[str, Any] = run.read_json(run.environment)
            except DataError:
                continue
            return found
    return None


def _published(
    study: Study, points: pd.DataFrame, needs: Needs, environment: dict[str, Any] | None, trials: Sequence[Trial]
) -> dict[str, Any]:
    """What was published beside what was measured; nothing without a study file."""
    if not study.definition:
        return {}
    said = publishedfile.parse(parse_document(study.definition, "definition.yaml"))
    here = published.place(environment, trials[0].cache) if environment is not None else ""
    found = published.compare(points, said, axes=[axis.key for axis in study.axes], here=here)
    return {
        "published": tuple(one.figure for one in found if one.figure is not None),
        "statements": tuple(one.statement for one in found),
        "remarks": said.remarks,
        "warnings": precautions(study, needs),
    }


def precautions(study: Study, needs: Needs) -> tuple[str, ...]:
    """What must be said before a study whose publication had data larger than memory."""
    if not study.definition:
        return ()
    said = publishedfile.parse(parse_document(study.definition, "definition.yaml"))
    largest = max((one.bytes for one in needs.data), default=None)
    return tuple(published.precautions(said, largest, float(psutil.virtual_memory().total)))
