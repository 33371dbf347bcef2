"""Saver of the layouts ``files`` and ``torch_save``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import files_of
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_reader import CheckpointReader
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_writer import CheckpointWriter
from dlio_torch.checkpoint.layouts.synchronous_saver import SynchronousSaver
from dlio_torch.checkpoint.rank_folder import rank_folder
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.checkpoint.write_errors import cannot_write
from dlio_torch.errors import PreconditionError
from dlio_torch.files.atomic_file import fsync_path
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size


class PlainSaver(SynchronousSaver):
    """Writes the configured files one after the other, or one file by ``torch.save``.

    Where ``{step}`` is in the name of a file, each checkpoint is a file of its own, otherwise the file is replaced.
    ``layout=torch_save`` is ``checkpoint-<step>.pt``.  See
    :class:`dlio_torch.checkpoint.layouts.plain_files.checkpoint_writer.CheckpointWriter` for the content.

    Args:
        setup: settings of the saver.

    Raises:
        ConfigError: two files have one name.
        PreconditionError: the state does not fit into memory.
    """

    def __init__(self, setup: SaverSetup) -> None:
        super().__init__()
        config = setup.config.checkpoint
        self._subfolder = rank_folder(setup.config, setup.comm.rank)
        self._folder = setup.directory / self._subfolder
        self._files = files_of(config)
        try:
            self._writer = CheckpointWriter(config, self._files, setup.recorder)
        except OSError as error:
            raise refused("the size of a checkpoint cannot be tried out", error) from error
        except (MemoryError, RuntimeError) as error:
            raise PreconditionError(
                f"a checkpoint of {format_size(sum(file.size for file in self._files))} does not fit into memory",
                hint="lower checkpoint.state_bytes, or set checkpoint.files[].write_bytes",
            ) from error
        self._reader = CheckpointReader(config, self._files, setup.recorder, self._writer.state.keys())

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        start, written, flushed = time.perf_counter_ns(), 0, 0.0
        done: list[Path] = []
        for file in self._files:
            path = file.path(self._folder, step)
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                size, fsync_s = self._writer.write(path, file, step, fsync=fsync)
            except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
                fixed = {other.path(self._folder, 0) for other in self._files if "{step}" not in other.name}
                _delete([path for path in done if path not in fixed])
                raise cannot_write(path, file.size, error) from error
            written, flushed = written + size, flushed + fsync_s
            done.append(path)
        if fsync and done:
            flushed += self._flush_names()
        spent = (time.perf_counter_ns() - start) / 1e9
        times = SaveTimes(
            step, start, spent, spent, written, write_s=spent - flushed, fsync_s=flushed if fsync else None
        )
        self._finished.append(times)

    def discard(self, step: int) -> None:
        _delete([file.path(self._folder, step) for file in self._files if "{step}" in file.name])

    def drop_cached_pages(self, step: int) -> None:
        self._reader.drop_cached_pages(self._folder, step)

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        return self._reader.restore(directory / self._subfolder, step)

    def _flush_names(self) -> float:
        """Flush the folder, which holds the names; returns the seconds."""
        start = time.perf_counter_ns()
        try:
            fsync_path(self._folder)
        except OSError as error:
            raise refused(f"the checkpoints in {self._folder} cannot be flushed", error) from error
        return (time.perf_counter_ns() - start) / 1e9


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
