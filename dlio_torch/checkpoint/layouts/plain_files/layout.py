"""Layouts ``files`` (files of given sizes) and ``torch_save`` (``torch.save`` of a model or of a state by size)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.checkpoint.base import Layout, SaverSetup
from dlio_torch.checkpoint.file_entries import entry, of_rank
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import files_of
from dlio_torch.checkpoint.layouts.plain_files.described_file import described, described_file
from dlio_torch.config.schema import Config

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Saver


class _PlainLayout(Layout):
    def file_names(self, config: Config) -> list[str]:
        return of_rank(config, [entry(file.name) for file in files_of(config.checkpoint)])

    def saved_bytes(self, config: Config, rank: int) -> int:
        return sum(self.file_sizes(config, rank))

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        return [file.size for file in files_of(config.checkpoint)]

    def open(self, setup: SaverSetup) -> Saver:
        from dlio_torch.checkpoint.layouts.plain_files.saver import PlainSaver

        return PlainSaver(setup)


class FilesLayout(_PlainLayout):
    """Files of given sizes, each written with write calls of a given size."""

    options = frozenset({"files", "restore_read_bytes", "ranks", "rename"})

    def held_bytes(self, config: Config, rank: int) -> int:
        return max((file.write_bytes for file in config.checkpoint.files), default=0)

    def replaced_bytes(self, config: Config) -> list[int]:
        return [file.bytes for file in config.checkpoint.files if "{step}" not in file.name]


class TorchSaveLayout(_PlainLayout):
    """One file of a rank, written by ``torch.save``: a described model, listed tensors, or a state by size."""

    options = frozenset({"state_bytes", "file_name", "tensors", "ranks", "rename", "restore_part"})

    def replaced_bytes(self, config: Config) -> list[int]:
        return [] if "{step}" in config.checkpoint.file_name else self.file_sizes(config, 0)

    def saves_job(self, config: Config) -> bool:
        return described(config) and config.model.described

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        return [described_file(config, rank).bytes] if described(config) else super().file_sizes(config, rank)

    def held_bytes(self, config: Config, rank: int) -> int:
        """The state; a restore reads it once more beside it."""
        if not described(config):
            return config.checkpoint.state_bytes
        return described_file(config, rank).bytes * (1 + config.checkpoint.restore)

    def open(self, setup: SaverSetup) -> Saver:
        if not described(setup.config):
            return super().open(setup)
        from dlio_torch.checkpoint.layouts.plain_files.torch_library import open_torch_saver

        return open_torch_saver(setup)
