"""Content of the page of any study, and the parts that a publication adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dlio_torch.config.emit import as_dict
from dlio_torch.config.yamlfile import dump_scalar, parse_document
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.axes import configured
from dlio_torch.study.metrics import CPU, METRICS, RATE, Metric, metric
from dlio_torch.study.model import Axis, Study, Trial
from dlio_torch.study.needs import StudyNeeds
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.published import comparison, publication
from dlio_torch.study.published.publication import Published
from dlio_torch.study.resolve import compose_trial
from dlio_torch.study.store import Store
from dlio_torch.units import parse_size

if TYPE_CHECKING:
    import pandas as pd

_MIB = parse_size("1MiB")


def page_content(store: Store, measured: Sequence[Trial], **more: Any) -> StudyData:
    """Builds the content that the pages of all studies have.

    Args:
        store: of the study.
        measured: trials, finished and failed ones in the order of time.
        more: further content, and content that takes the place of the common one, by its name in ``StudyData``.
    """
    study = store.study
    common: dict[str, Any] = {
        "title": study.title,
        "path": store.path,
        "axes": _with_defaults(study, store.cwd),
        "trials": tuple(_with_rate(trial) for trial in measured),
        "description": study.description,
        "metrics": _metrics(study),
        "objective": study.figures[0],
        "settings": study.settings,
        "scaled": study.scaled,
        "ranks": study.ranks,
        "environment": _environment(store, measured),
        "config": (("study.yaml", store.text()),),
    }
    return StudyData(**{**common, **more})


def published_content(content: StudyData, store: Store, points: pd.DataFrame, needs: StudyNeeds) -> StudyData:
    """Adds published figures next to the measured ones; without a study file the content is unchanged."""
    study = store.study
    published = _published(study)
    if published is None:
        return content
    measured_on = ""
    if content.environment is not None:
        measured_on = comparison.place(content.environment, content.trials[0].cache)
    agreements = comparison.compare(points, published, axes=[axis.key for axis in study.axes], here=measured_on)
    return replace(
        content,
        published=tuple(agreement.figure for agreement in agreements if agreement.figure is not None),
        statements=tuple(agreement.statement for agreement in agreements),
        remarks=published.remarks,
        warnings=precautions(study, needs),
    )


def precautions(study: Study, needs: StudyNeeds) -> tuple[str, ...]:
    """Returns the lines to print before a study whose publication used data larger than memory."""
    published = _published(study)
    if published is None:
        return ()
    largest = max((data.bytes for data in needs.data), default=None)
    return tuple(comparison.precautions(published, largest, float(psutil.virtual_memory().total)))


def _published(study: Study) -> Published | None:
    if not study.definition:
        return None
    return publication.parse(parse_document(study.definition, "definition.yaml"))


def _with_rate(trial: Trial) -> Trial:
    """The trial with its rate in bytes per second."""
    rate = trial.figures.get("train.mib_per_s")
    return replace(trial, figures={**trial.figures, RATE.key: None if rate is None else rate * _MIB})


def _metrics(study: Study) -> tuple[Metric, ...]:
    """Metrics that the study names, those of every page, and the CPU time."""
    objective = replace(metric(study.figures[0]), better=study.better)
    metrics: dict[str, Metric] = {}
    for item in (objective, *map(metric, study.figures[1:]), *METRICS, CPU):
        metrics.setdefault(item.key, item)
    return tuple(metrics.values())


def _with_defaults(study: Study, cwd: Path) -> tuple[Axis, ...]:
    """The axes with the value that each option has without the study."""
    try:
        config: Any = as_dict(compose_trial(study.verb, study.settings, study.ranks, cwd=cwd).config)
    except ConfigError:  # an option that every point must set
        config = {}
    return tuple(replace(axis, settings=None, default=_value(config, axis)) for axis in study.axes)


def _value(config: Any, axis: Axis) -> str | None:
    try:
        value = configured(config, axis.key)
    except KeyError:
        return None
    return None if isinstance(value, dict) else dump_scalar(value)


def _environment(store: Store, trials: Sequence[Trial]) -> dict[str, Any] | None:
    """``environment.json`` of the first finished trial that has one."""
    for trial in trials:
        directory = store.directory(trial)
        if not trial.failed and directory is not None and directory.is_dir():
            run = RunDir(directory)
            try:
                environment: dict[str, Any] = run.read_json(run.environment)
            except DataError:
                continue
            return environment
    return None
