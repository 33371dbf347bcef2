"""Restores of checkpoints: the reads with which a restarted application loads its state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from dlio_torch.checkpoint.cached_pages import drop_pages
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import CheckpointFile
from dlio_torch.checkpoint.save_times import RestoreTimes
from dlio_torch.checkpoint.torch_files import NOT_RESTORED, load_torch_file
from dlio_torch.config.opt import LARGEST_CALL
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import DataError
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.syserrors import unreadable


class CheckpointReader:
    """Reads the files of a checkpoint.

    ``layout=torch_save`` reads its file with ``torch.load(weights_only=True)``; the others read each file with read(2)
    calls of ``restore_read_bytes`` (0: the whole file).

    Args:
        config: what is saved, and how it is read.
        files: files of a checkpoint.
        recorder: records a span ``read`` per file.
        state_keys: keys of the state that is saved with ``layout=torch_save``.
    """

    def __init__(
        self, config: CheckpointConfig, files: Sequence[CheckpointFile], recorder: Recorder, state_keys: Set[str]
    ) -> None:
        self._config = config
        self._files = files
        self._recorder = recorder
        self._state_keys = state_keys

    def drop_cached_pages(self, folder: Path, step: int) -> None:
        """Drop the files of the checkpoint of ``step`` from the page cache.

        Raises:
            DlioError: a file cannot be opened (see :mod:`dlio_torch.syserrors`).
        """
        drop_pages(file.path(folder, step) for file in self._files)

    def restore(self, folder: Path, step: int) -> RestoreTimes:
        """Read the checkpoint of ``step`` in ``folder``.

        Raises:
            DataError: a file is missing or damaged.
        """
        start = time.perf_counter_ns()
        size = sum(self._read(file.path(folder, step), file) for file in self._files)
        spent = (time.perf_counter_ns() - start) / 1e9
        return RestoreTimes(spent, size, read_s=spent)

    def _read(self, path: Path, file: CheckpointFile) -> int:
        read: Callable[[Path, CheckpointFile], int] = (
            self._load if self._config.layout == "torch_save" else self._read_calls
        )
        with self._recorder.span("read", file=str(path), bytes=file.size):
            try:
                return read(path, file)
            except OSError as error:
                raise unreadable(f"checkpoint file {path}", error) from error

    def _read_calls(self, path: Path, file: CheckpointFile) -> int:
        call = min(self._config.restore_read_bytes or file.size, file.size, LARGEST_CALL)
        buffer = memoryview(bytearray(call))
        done = 0
        with open(path, "rb", buffering=0) as source:
            while done < file.size:
                count = source.readinto(buffer[: min(call, file.size - done)])
                if not count:
                    raise DataError(
                        f"checkpoint file {path} ends after {done} of {file.size} bytes",
                        hint=NOT_RESTORED,
                    )
                done += count
        return done

    def _load(self, path: Path, file: CheckpointFile) -> int:
        state = load_torch_file(path)
        if state.keys() != self._state_keys | {"step"}:
            raise DataError(f"checkpoint file {path} holds another state", hint=NOT_RESTORED)
        return path.stat().st_size
