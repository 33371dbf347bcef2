"""Saver of the layout ``tensorflow``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import CheckpointFile
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_reader import CheckpointReader
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_writer import random_bytes
from dlio_torch.checkpoint.layouts.synchronous_saver import SynchronousSaver
from dlio_torch.checkpoint.layouts.tensorflow.amounts import largest_write, start_bytes
from dlio_torch.checkpoint.layouts.tensorflow.tensorflow_saver import TensorFlowSaver
from dlio_torch.checkpoint.rank_folder import rank_folder
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.checkpoint.write_errors import cannot_write
from dlio_torch.errors import PreconditionError
from dlio_torch.files.atomic_file import fsync_path
from dlio_torch.units import format_size


class TensorFlowFilesSaver(SynchronousSaver):
    """Writes what TensorFlow's Saver writes (see :mod:`dlio_torch.checkpoint.layouts.tensorflow.tensorflow_saver`).

    A restore reads variables and index, not the graph.

    Args:
        setup: settings of the saver.

    Raises:
        PreconditionError: the content does not fit into memory.
    """

    def __init__(self, setup: SaverSetup) -> None:
        super().__init__()
        config = setup.config.checkpoint
        self._recorder = setup.recorder
        self._subfolder = rank_folder(setup.config, setup.comm.rank)
        self._folder = setup.directory / self._subfolder
        name, call = config.tensorflow.name, largest_write(config.tensorflow, config.state_bytes)
        self._size = config.state_bytes + config.tensorflow.index_bytes
        self._start_bytes = start_bytes(config.tensorflow)
        files = [
            CheckpointFile(f"{name}.index", config.tensorflow.index_bytes, call),
            CheckpointFile(f"{name}.data-00000-of-00001", config.state_bytes, call),
        ]
        try:
            content = random_bytes(call)
        except MemoryError as error:
            raise PreconditionError(
                f"a write call of {format_size(call)} does not fit into memory",
                hint="lower checkpoint.tensorflow.meta_bytes",
            ) from error
        self._saver = TensorFlowSaver(config.tensorflow, config.state_bytes, self._folder, content)
        self._reader = CheckpointReader(config, files, setup.recorder, set())
        self._saved: set[int] = set()  # steps of the checkpoints in the folder

    def begin(self) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return self._saver.begin()
        except OSError as error:
            raise cannot_write(self._folder, self._start_bytes, error) from error

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        start = time.perf_counter_ns()
        data = self._saver.names(step)[0]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._recorder.span("write", step=step, file=str(data), bytes=self._size):
                written = self._saver.save(step, list(kept), list(surplus))
            wrote = time.perf_counter_ns()
            for path in (*self._saver.names(step), self._folder) if fsync else ():
                fsync_path(path)
        except OSError as error:
            self._saver.discard(step)
            raise cannot_write(data, self._size, error) from error
        end = time.perf_counter_ns()
        self._saved = (self._saved | {step}) - set(surplus)
        spent, fsync_s = (end - start) / 1e9, (end - wrote) / 1e9 if fsync else None
        times = SaveTimes(step, start, spent, spent, written, write_s=(wrote - start) / 1e9, fsync_s=fsync_s)
        self._finished.append(times)

    def discard(self, step: int) -> None:
        if step in self._saved:
            self._saved.remove(step)
            self._saver.remove(step)

    def drop_cached_pages(self, step: int) -> None:
        self._reader.drop_cached_pages(self._folder, step)

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        return self._reader.restore(directory / self._subfolder, step)

    def close(self) -> None:
        try:
            self._saver.close()
        except OSError as error:
            raise cannot_write(self._folder, 0, error) from error
