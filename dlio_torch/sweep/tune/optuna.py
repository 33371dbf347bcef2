"""The trials of a search as a study of Optuna, for its dashboard; :mod:`dlio_torch.sweep.tune.search` chooses them.

The storage is a journal, one file without locks of a data base, that ``optuna-dashboard <file>`` shows while the
search runs.  What counts is ``trials.jsonl``: a journal that lacks some of its trials is brought up to date.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.sweep.axes import NOT_APPLICABLE, Axis

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState
except ImportError as error:
    raise MissingPackageError("tune needs Optuna", hint="pip install 'dlio-torch[sweep]'") from error

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

JOURNAL = "optuna.journal"
_POINT, _REPEAT, _KEY = "point", "repeat", "trial"


@dataclass(frozen=True)
class Record:
    """A finished run, as Optuna is told of it.

    Attributes:
        key: names it among all runs of the study.
        point: number of its point.
        repeat: which run of the point.
        values: of the axes, ``-`` where one has no meaning.
        value: of the objective; ``None``: it failed.
        notes: what else is shown with it.
    """

    key: str
    point: int
    repeat: int
    values: tuple[tuple[str, str], ...]
    value: float | None
    notes: Mapping[str, Any]


class PointSampler(optuna.samplers.BaseSampler):
    """Gives each trial the values of the point that the search has chosen.

    Optuna's own samplers draw every parameter by itself; here points are a finite set in which some parameters
    exist only together, none is explored twice, and the one that leads is measured again.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = axes
        self.values: Mapping[str, str] = {}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that the point has."""
        return {axis.key: _distribution(axis) for axis in self._axes if _has(self.values, axis)}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Their values."""
        return {key: self.values[key] for key in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never asked: all parameters are sampled together."""
        raise NotImplementedError(param_name)


class OptunaRecord:
    """Optuna's study in the directory of a search.

    Args:
        folder: of the search.
        name: of the study.
        axes: its parameters.
        direction: of the objective.

    Raises:
        DataError: the journal is damaged.
    """

    def __init__(
        self, folder: Path, name: str, axes: Sequence[Axis], direction: Literal["maximize", "minimize"]
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.path = folder / JOURNAL
        self._axes = tuple(axes)
        self._sampler = PointSampler(self._axes)
        try:
            self.study: Study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(self.path))),
                sampler=self._sampler,
                study_name=name,
                direction=direction,
                load_if_exists=True,
            )
        except (ValueError, KeyError, OSError) as error:
            text = " ".join(str(error).split())
            raise DataError(f"{self.path} cannot be read: {text}", hint="remove it; it is written anew") from error

    def begin(self, values: Sequence[tuple[str, str]]) -> optuna.Trial:
        """Begin a trial of the point that has these values."""
        self._sampler.values = dict(values)
        trial = self.study.ask()
        for axis in self._axes:
            if _has(self._sampler.values, axis):
                trial.suggest_categorical(axis.key, axis.values)
        return trial

    def end(self, trial: optuna.Trial, record: Record) -> None:
        """Record what became of it."""
        notes = {_KEY: record.key, _POINT: record.point, _REPEAT: record.repeat, **record.notes}
        for key, value in notes.items():
            trial.set_user_attr(key, value)
        if record.value is None:
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            self.study.tell(trial, record.value)

    def abandon(self, trial: optuna.Trial) -> None:
        """A run that was interrupted."""
        with contextlib.suppress(Exception):  # the interrupt itself is what the user has to see
            self.study.tell(trial, state=TrialState.FAIL)

    def catch_up(self, records: Sequence[Record]) -> None:
        """Add what the journal lacks, and end what a killed search has left running."""
        known = set()
        for trial in self.study.get_trials(deepcopy=False):
            known.add(trial.user_attrs.get(_KEY))
            if not trial.state.is_finished():
                self.study.tell(trial.number, state=TrialState.FAIL)
        for record in records:
            if record.key not in known:
                self.end(self.begin(record.values), record)


def _has(values: Mapping[str, str], axis: Axis) -> bool:
    return values.get(axis.key, NOT_APPLICABLE) in axis.values


def _distribution(axis: Axis) -> BaseDistribution:
    return optuna.distributions.CategoricalDistribution(axis.values)
