"""The file that ``torch.save`` writes of a described model."""

from __future__ import annotations

from dlio_torch.checkpoint.job.saved_state import rank_optimizer, rank_weights
from dlio_torch.checkpoint.layouts.described_state.optimizer_content import optimizer_content, state_groups
from dlio_torch.checkpoint.layouts.described_state.state_file import StateFile
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import TORCH_FILE
from dlio_torch.checkpoint.rank_folder import rank_folder
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig


def described(config: Config) -> bool:
    """Whether the model describes the state that ``layout=torch_save`` saves; otherwise its size does."""
    return config.model.described and not config.checkpoint.state_bytes


def described_file(config: Config, rank: int) -> StateFile:
    """The file of a rank: its part of the state if all ranks save, otherwise the whole state.

    Args:
        config: the experiment.
        rank: number of the rank.
    """
    job = (config.model, config.parallel, rank)
    if config.checkpoint.ranks == "first":
        job = (config.model, ParallelConfig(), 0)
    content = {
        "model": {weight.name: weight for weight in rank_weights(*job)},
        "optimizer": optimizer_content(state_groups(rank_optimizer(*job))),
    }
    folder = rank_folder(config, rank)
    return StateFile(f"{folder}/{TORCH_FILE}" if folder else TORCH_FILE, content, step_key="step")
