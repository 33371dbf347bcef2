"""Turns a recorded training into the values of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlio_torch.fit.batch_amounts import fit_amounts
from dlio_torch.fit.cached_data import fit_cache
from dlio_torch.fit.checkpoints import fit_checkpoints
from dlio_torch.fit.data_set import DataFit, fit_data
from dlio_torch.fit.evaluation_steps import fit_evaluation
from dlio_torch.fit.finding import Findings
from dlio_torch.fit.loader_options import fit_loader
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.fit.sample_order import fit_order
from dlio_torch.fit.step_times import fit_steps

Part = Callable[[RecordedTraining, DataFit], Findings]

_PARTS: tuple[Part, ...] = (fit_order, fit_loader, fit_steps, fit_amounts, fit_evaluation, fit_checkpoints, fit_cache)


@dataclass(frozen=True)
class FittedTraining:
    """The values of a recipe.

    Attributes:
        findings: in the order of a recipe: data set, access, loader, compute, training, checkpoints.
        data: the data set, and which calls it explains.
        ranks: number of ranks of the recording.
    """

    findings: Findings
    data: DataFit
    ranks: int


def fit_training(training: RecordedTraining) -> FittedTraining:
    """Finds the values of a recipe that emulates a recorded training.

    Raises:
        DataError: its data cannot be told.
    """
    data = fit_data(training)
    result = data.findings
    for part in _PARTS:
        result += part(training, data)
    return FittedTraining(result, data, training.world_size)
