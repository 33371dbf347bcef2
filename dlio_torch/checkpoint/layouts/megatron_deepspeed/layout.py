"""Layout ``megatron_deepspeed``: the files of each rank in ``global_step<n>/``, and the file ``latest``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.checkpoint.base import Layout, SaverSetup
from dlio_torch.checkpoint.file_entries import entry
from dlio_torch.checkpoint.layouts.described_state.state_file import tensor_bytes
from dlio_torch.checkpoint.layouts.megatron_deepspeed.deepspeed_files import FOLDER, read_files, saved_files
from dlio_torch.config.schema import Config
from dlio_torch.ownership.names import numbers

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Saver

LATEST = "latest"
"""File with the tag of the newest complete checkpoint."""


class MegatronDeepSpeedLayout(Layout):
    """The files of Megatron-DeepSpeed: layers or parts of the model, and a file of the optimizer for each rank."""

    needs_model = True

    def file_names(self, config: Config) -> list[str]:
        data, rank = f"zero_pp_rank_{numbers()}_", f"mp_rank_{numbers(digits=2)}"
        names = [f"{prefix}{rank}_model_states.pt" for prefix in ("", data)]
        names += [f"{prefix}{data}{rank}_optim_states.pt" for prefix in ("", "bf16_")]
        names += [f"layer_{numbers(digits=2)}-model_{numbers(digits=2)}-model_states.pt"]
        return [LATEST, *(f"{entry(FOLDER)}/{name}" for name in names)]

    def saved_bytes(self, config: Config, rank: int) -> int:
        """Bytes of the tensors; ``torch.save`` adds a header of some hundred bytes to each."""
        return tensor_bytes(saved_files(config.model, config.parallel, rank))

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        """Sizes of the tensors in each file; ``latest``, which has some bytes, is left out."""
        return [file.bytes for file in saved_files(config.model, config.parallel, rank)]

    def held_bytes(self, config: Config, rank: int) -> int:
        """The tensors of a rank; a restore reads one file after the other beside them."""
        saved = saved_files(config.model, config.parallel, rank)
        read = read_files(config.model, config.parallel, rank) if config.checkpoint.restore else []
        return tensor_bytes(saved) + max((file.bytes for file in read), default=0)

    def open(self, setup: SaverSetup) -> Saver:
        from dlio_torch.checkpoint.layouts.megatron_deepspeed.saver import open_saver

        return open_saver(setup)
