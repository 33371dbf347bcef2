"""Saver of the layout ``megatron_deepspeed``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.described_state.state_saver import Commit, StateLibrary, StateSaver, flush
from dlio_torch.checkpoint.layouts.megatron_deepspeed.deepspeed_files import FOLDER, read_files, saved_files
from dlio_torch.checkpoint.layouts.megatron_deepspeed.layout import LATEST
from dlio_torch.checkpoint.torch_files import NOT_RESTORED, load_torch_file, save_torch_file
from dlio_torch.errors import DataError
from dlio_torch.syserrors import unreadable


def open_saver(setup: SaverSetup) -> StateSaver:
    """Makes the saver of one rank.

    Raises:
        PreconditionError: the tensors do not fit into memory.
    """
    job = (setup.config.model, setup.config.parallel, setup.comm.rank)
    return StateSaver(setup, DeepSpeedLibrary(setup), saved_files(*job), read_files(*job))


class DeepSpeedLibrary(StateLibrary):
    """Writes each file under its final name with ``torch.save``, as DeepSpeed's ``TorchCheckpointEngine`` does.

    A checkpoint is complete when ``latest`` names it or a later one: the first rank writes ``latest`` after all ranks
    have written their files.

    Args:
        setup: settings of the saver.
    """

    def __init__(self, setup: SaverSetup) -> None:
        self._setup = setup

    def write(self, content: Any, path: Path) -> None:
        save_torch_file(content, path)

    def load(self, path: Path) -> Any:
        return load_torch_file(path)

    def commit(self, step: int, *, fsync: bool) -> Commit:
        self._setup.comm.barrier()
        commit = self._write_latest(step, fsync=fsync) if self._setup.comm.rank == 0 else Commit()
        self._setup.comm.barrier()
        return commit

    def check_complete(self, directory: Path, step: int) -> None:
        path = directory / LATEST
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError as error:
            raise _incomplete(directory, step, f"{path} does not exist") from error
        except OSError as error:
            raise unreadable(path, error) from error
        # A save that was killed after it had emptied the file had written all else.
        newest = text.removeprefix(_tag(0)[:-1])
        if text and not (newest.isdecimal() and int(newest) >= step):
            raise _incomplete(directory, step, f"{path} names {text[:40]!r}")

    def _write_latest(self, step: int, *, fsync: bool) -> Commit:
        """Write the name of the checkpoint."""
        path, start = self._setup.directory / LATEST, time.perf_counter_ns()
        path.write_text(_tag(step), encoding="utf-8")
        wrote = (time.perf_counter_ns() - start) / 1e9
        # Its bytes belong to no checkpoint.
        return Commit(0, wrote, flush([path, path.parent]) if fsync else 0.0)


def _tag(step: int) -> str:
    return FOLDER.replace("{step}", str(step))


def _incomplete(directory: Path, step: int, reason: str) -> DataError:
    return DataError(f"the checkpoint {directory / _tag(step)} is not complete: {reason}", hint=NOT_RESTORED)
