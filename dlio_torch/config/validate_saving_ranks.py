"""Checks of the ranks that save and read checkpoints against the described job."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_dcp import check_restoring_ranks
from dlio_torch.config.validate_layouts import check_saved_parts
from dlio_torch.config.validate_model import check_job_ranks


def check_saving_ranks(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse checkpoints that do not fit ``world_size`` ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    check_job_ranks(config, world_size, fail)
    check_restoring_ranks(config, world_size, fail)
    check_saved_parts(config, world_size, fail)
