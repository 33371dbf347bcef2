"""Layout ``tensorflow``: variables, index and graph of each checkpoint, and the list of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.checkpoint.base import Layout, SaverSetup
from dlio_torch.checkpoint.file_entries import entry, of_rank
from dlio_torch.checkpoint.layouts.tensorflow.amounts import largest_write, start_bytes
from dlio_torch.config.schema import Config

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Saver


class TensorFlowLayout(Layout):
    """The files of TensorFlow's Saver."""

    def file_names(self, config: Config) -> list[str]:
        prefix = config.checkpoint.tensorflow.name
        ends = ("", ".tmp*")
        written = [f"{prefix}.index", f"{prefix}.data-00000-of-00001"]
        replaced = [f"{prefix}.meta", "checkpoint", "graph.pbtxt"]
        return of_rank(
            config,
            [
                *map(entry, written),
                f"{entry(prefix)}_temp/part-*",
                "events.out.tfevents.*",
                *(f"{entry(name)}{end}" for name in replaced for end in ends),
                *(f"{entry(name)}.tempstate*" for name in written),
            ],
        )

    def saved_bytes(self, config: Config, rank: int) -> int:
        return sum(self.file_sizes(config, rank))

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        options = config.checkpoint.tensorflow
        return [config.checkpoint.state_bytes, options.index_bytes, options.meta_bytes]

    def held_bytes(self, config: Config, rank: int) -> int:
        return largest_write(config.checkpoint.tensorflow, config.checkpoint.state_bytes)

    def start_bytes(self, config: Config) -> int:
        return start_bytes(config.checkpoint.tensorflow)

    def open(self, setup: SaverSetup) -> Saver:
        from dlio_torch.checkpoint.layouts.tensorflow.saver import TensorFlowFilesSaver

        return TensorFlowFilesSaver(setup)
