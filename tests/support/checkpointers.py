"""Checkpointers of tests, without a run around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import Checkpointer, open_checkpointer
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import DataError
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


def checkpointer(
    options: CheckpointConfig, directory: Path | str, rank: int = 0, recorder: Recorder = NULL, **more: Any
) -> Checkpointer:
    """The checkpointer of one of two ranks."""
    comm = SingleCommunicator()
    comm.rank, comm.world_size = rank, max(2, rank + 1)
    return open_checkpointer(SaverSetup(Config(checkpoint=options), Path(directory), comm, recorder), **more)


def job_checkpointers(config: Config, directory: Path, ranks: int, **more: Any) -> list[Checkpointer]:
    """The checkpointers of the ranks of a described job, in one process."""
    checkpointers = []
    for rank in range(ranks):
        comm = SingleCommunicator()
        comm.rank, comm.world_size = rank, ranks
        checkpointers.append(open_checkpointer(SaverSetup(config, directory, comm, NULL), **more))
    return checkpointers


def saved_names(folder: Path) -> list[str]:
    """Relative paths of all files of a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def restore_problem(config: Config, directory: Path, step: int) -> str:
    """The line with which the first rank of a job refuses a checkpoint."""
    [rank] = job_checkpointers(config, directory, 1, restores=(directory, step))
    with pytest.raises(DataError) as caught:
        rank.restore()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def saved_bytes(saves: Checkpointer, step: int) -> int:
    """Saves a checkpoint; returns its bytes."""
    before = saves.written_bytes
    saves.save(step)
    return saves.written_bytes - before


def restored_bytes(saves: Checkpointer) -> int:
    """Restores a checkpoint; returns its bytes."""
    times = saves.restore()
    return 0 if times is None else times.bytes
