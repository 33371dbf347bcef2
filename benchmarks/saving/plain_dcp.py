"""Saves by ``torch.distributed.checkpoint`` as a script calls it, without this tool's saver, on one rank."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.saving.save import Save, measured
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


class PlainDcp:
    """Saves the state of a model, in the default process group or in one of its own.

    Args:
        model: the model and its optimizer.
    """

    def __init__(self, model: ModelConfig) -> None:
        self._is_group_ours = not dist.is_initialized()
        if self._is_group_ours:
            dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        self._state = job_state(model, ParallelConfig(), 0, seed=0)

    def save(self, folder: Path) -> Save:
        """Saves one checkpoint to a new folder, and flushes its files."""
        writer = FileSystemWriter(folder)
        return measured(folder, lambda: save(self._state, storage_writer=writer, planner=DefaultSavePlanner()))

    def close(self) -> None:
        """Leaves the process group."""
        if self._is_group_ours and dist.is_initialized():
            dist.destroy_process_group()
