"""``torch.save`` of a described model or of listed tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.described_state.state_saver import Commit, StateLibrary, StateSaver
from dlio_torch.checkpoint.layouts.plain_files.described_file import described_file
from dlio_torch.checkpoint.torch_files import load_torch_file, save_torch_file
from dlio_torch.files.atomic_file import target


def open_torch_saver(setup: SaverSetup) -> StateSaver:
    """Makes the saver of one rank.

    Raises:
        PreconditionError: the tensors do not fit into memory.
    """
    files = [described_file(setup.config, setup.comm.rank)]
    return StateSaver(setup, TorchSaveLibrary(rename=setup.config.checkpoint.rename), files, files)


class TorchSaveLibrary(StateLibrary):
    """Writes files by ``torch.save``.

    Args:
        rename: whether a file has its name only when it is complete.
    """

    def __init__(self, *, rename: bool) -> None:
        self._rename = rename

    def named(self, path: Path) -> AbstractContextManager[Path]:
        return target(path, rename=self._rename)

    def write(self, content: Any, path: Path) -> None:
        save_torch_file(content, path)

    def load(self, path: Path) -> Any:
        return load_torch_file(path)

    def commit(self, step: int, *, fsync: bool) -> Commit:
        """Do nothing: each rank has one file."""
        return Commit()

    def check_complete(self, directory: Path, step: int) -> None:
        """Accept each file that has its name."""
