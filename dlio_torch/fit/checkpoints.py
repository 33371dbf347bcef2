"""The checkpoints of a recorded training: files, sizes and interval."""

from __future__ import annotations

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Findings
from dlio_torch.fit.recorded_training import RecordedTraining


def fit_checkpoints(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``checkpoint``."""
    return Findings()
