"""The evaluation of a recorded training: how often, how many steps, and their time."""

from __future__ import annotations

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Findings
from dlio_torch.fit.recorded_training import RecordedTraining


def fit_evaluation(training: RecordedTraining, data: DataFit) -> Findings:
    """Options ``train.eval_*`` and ``compute.eval_step_s``."""
    return Findings()
