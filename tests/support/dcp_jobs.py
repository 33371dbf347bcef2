"""A small described job for checkpoints by torch.distributed.checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import Checkpointer, open_checkpointer
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.iotrace.recorder.spans import NULL

MODEL = ModelConfig(hidden_size=64, num_layers=2, num_heads=4, ffn_hidden_size=160, vocab_size=250)
TENSORS = 2 + 1 + 2 * 9
"""Number of parameters: tables, last norm, and those of two layers."""


def dcp_config(parallel: dict[str, Any], checkpoint: dict[str, Any]) -> Config:
    """The configuration of the job, whose ranks share its state by FSDP; ``checkpoint`` may name another layout."""
    ranks = ParallelConfig(**{"fsdp": "full", **parallel})
    saved = CheckpointConfig(**{"layout": "dcp", "every_steps": 1, **checkpoint})
    return Config(model=MODEL, parallel=ranks, checkpoint=saved)


def dcp_checkpointer(
    folder: Path,
    parallel: dict[str, Any] | None = None,
    *,
    model: ModelConfig = MODEL,
    restores: tuple[Path, int] | None = None,
    **checkpoint: Any,
) -> Checkpointer:
    """The checkpointer of the first rank of the job, in one process."""
    config = replace(dcp_config(parallel or {}, checkpoint), model=model)
    return open_checkpointer(SaverSetup(config, folder, SingleCommunicator(), NULL), restores=restores)
