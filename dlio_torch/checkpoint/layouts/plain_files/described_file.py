"""The file that ``torch.save`` writes of a described model, or of listed tensors."""

from __future__ import annotations

from typing import Any

from dlio_torch.checkpoint.job.saved_state import rank_optimizer, rank_weights
from dlio_torch.checkpoint.layouts.described_state.optimizer_content import optimizer_content, state_groups
from dlio_torch.checkpoint.layouts.described_state.state_file import StateFile
from dlio_torch.checkpoint.listed_state import listed_state
from dlio_torch.checkpoint.rank_folder import rank_folder
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig


def described(config: Config) -> bool:
    """Whether a model or a list of tensors describes the state of ``layout=torch_save``; otherwise its size does."""
    return (config.model.described or bool(config.checkpoint.tensors)) and not config.checkpoint.state_bytes


def described_file(config: Config, rank: int) -> StateFile:
    """The file of a rank: its part of a model's state if all ranks save, otherwise the whole state.

    Args:
        config: the experiment.
        rank: number of the rank.
    """
    listed = listed_state(config.checkpoint)
    content = listed or _model_content(config, rank)
    folder, name = rank_folder(config, rank), config.checkpoint.file_name
    step_key = "" if listed else "step"  # a listed state has no further values
    return StateFile(f"{folder}/{name}" if folder else name, content, step_key=step_key)


def _model_content(config: Config, rank: int) -> dict[str, Any]:
    job = (config.model, config.parallel, rank)
    if config.checkpoint.ranks == "first":
        job = (config.model, ParallelConfig(), 0)
    return {
        "model": {weight.name: weight for weight in rank_weights(*job)},
        "optimizer": optimizer_content(state_groups(rank_optimizer(*job))),
    }
