"""Layout ``safetensors``: the weights in Hugging Face's layout, without the optimizer's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.checkpoint.base import Layout, SaverSetup
from dlio_torch.checkpoint.file_entries import entry
from dlio_torch.checkpoint.layouts.described_state.state_file import tensor_bytes
from dlio_torch.checkpoint.layouts.huggingface.huggingface_files import (
    FOLDER,
    INDEX,
    SHARDED,
    saved_files,
    whole_files,
)
from dlio_torch.config.schema import Config
from dlio_torch.ownership.names import numbers

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Saver


class SafetensorsLayout(Layout):
    """Files of weights as ``save_pretrained`` writes them, or a part of each rank from which such files are made."""

    options = frozenset(
        {"ranks", "restore_part", "shard_bytes", "consolidate", "consolidate_ranks", "consolidate_threads"}
    )
    needs_model = True

    def saving_ranks(self, config: Config, world_size: int) -> int:
        return world_size if config.checkpoint.ranks == "all" else 1

    def file_names(self, config: Config) -> list[str]:
        folder, number = entry(FOLDER), numbers(digits=5)
        part = f"shard-{number}-model-{number}-of-{number}.safetensors"
        names = ["model.safetensors", f"model-{number}-of-{number}.safetensors", part, f"{SHARDED}/{part}"]
        temporary = [".tmp*", f"{SHARDED}/.tmp*"]  # of the library, with random letters
        return [entry(INDEX), *(f"{folder}/{name}" for name in (*names, *temporary))]

    def saved_bytes(self, config: Config, rank: int) -> int:
        """Bytes of a rank's tensors; on the first rank also those of the whole files that are made of all parts."""
        return sum(self.file_sizes(config, rank))

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        """Sizes of the tensors in each file; the index is left out."""
        whole = whole_files(config) if config.checkpoint.consolidate and rank == 0 else []
        return [file.bytes for file in (*saved_files(config, rank), *whole)]

    def held_bytes(self, config: Config, rank: int) -> int:
        """The tensors of a rank, and a file beside them that is serialised or read."""
        files = saved_files(config, rank)
        read = whole_files(config) if config.checkpoint.restore and config.checkpoint.consolidate else files
        copied = files if config.checkpoint.ranks == "all" else []
        copied = copied + read if config.checkpoint.restore else copied
        return tensor_bytes(files) + max((file.bytes for file in copied), default=0)

    def open(self, setup: SaverSetup) -> Saver:
        from dlio_torch.checkpoint.layouts.huggingface.saver import open_saver

        return open_saver(setup)
