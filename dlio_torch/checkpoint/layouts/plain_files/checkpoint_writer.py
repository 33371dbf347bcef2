"""Content of checkpoints, and the writes with which an application saves it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.checkpoint.layouts.plain_files.adam_state import make_state
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_files import CheckpointFile
from dlio_torch.checkpoint.torch_files import save_torch_file
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.files.atomic_file import fsync_path, target, temporary_name
from dlio_torch.iotrace.recorder.spans import Recorder

_SHIFTS = 64 * 1024  # offsets in the content at which a write call may begin


class CheckpointWriter:
    """Writes files of ``layout=files`` and ``layout=torch_save``.

    ``layout=torch_save`` is ``torch.save`` of float32 parameters and of an Adam optimizer's two moments, whose file has
    ``state_bytes`` within 1 % from 64 KiB on.  Files of other layouts are random bytes that are never zero, so that
    neither sparse files nor compression shrink them; ``layout=files`` writes them with write(2) calls of
    ``write_bytes``.

    Args:
        config: what is saved.
        files: files of a checkpoint.
        recorder: records a span ``write`` and a span ``fsync`` per file.

    Raises:
        OSError: the size of a saved state cannot be tried out.
        MemoryError, RuntimeError: the content does not fit into memory.
    """

    def __init__(self, config: CheckpointConfig, files: Sequence[CheckpointFile], recorder: Recorder) -> None:
        self._recorder = recorder
        self._rename = config.rename
        self.state: dict[str, Any] = {}
        """State of ``layout=torch_save``; empty for other layouts."""
        self.content: Any = b""
        """Bytes of files, enough for the largest write call at any shift; empty for ``layout=torch_save``."""
        if config.layout == "torch_save":
            self.state = make_state(config.state_bytes, temporary_name(files[0].path(Path(), 0)).name)
        else:
            self.content = random_bytes(max((file.call for file in files), default=0))
        self._buffer = memoryview(self.content)

    def write(self, path: Path, file: CheckpointFile, step: int, *, fsync: bool) -> tuple[int, float]:
        """Write one file of the checkpoint of ``step``; with ``checkpoint.rename`` under a temporary name first.

        Args:
            path: final name of the file.
            file: size of the file and of its write calls.
            step: training steps done since the run began.
            fsync: whether the file is flushed to the device first.

        Returns:
            Bytes written, and seconds of flushing.

        Raises:
            OSError, RuntimeError: the file cannot be written; torch's writer raises RuntimeError.
        """
        fsync_s = 0.0
        with target(path, rename=self._rename) as temporary:
            with self._recorder.span("write", step=step, file=str(path), bytes=file.size):
                if self.state:
                    save_torch_file(self.state | {"step": step}, temporary)
                    written = temporary.stat().st_size
                else:
                    written = self._write_calls(temporary, file)
            if fsync:
                with self._recorder.span("fsync", step=step, file=str(path), bytes=written):
                    start = time.perf_counter_ns()
                    fsync_path(temporary)
                    fsync_s = (time.perf_counter_ns() - start) / 1e9
        return written, fsync_s

    def _write_calls(self, path: Path, file: CheckpointFile) -> int:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            done = calls = 0
            while done < file.size:
                # Each call begins elsewhere in the buffer, so that storage with deduplication finds no equal blocks.
                shift = calls * 997 % _SHIFTS
                done += os.write(descriptor, self._buffer[shift : shift + min(file.call, file.size - done)])
                calls += 1
        finally:
            os.close(descriptor)
        return done


def random_bytes(call: int) -> Any:
    """Random bytes without a zero, enough for a write call of ``call`` bytes at any shift."""
    block = np.random.default_rng(1).integers(1, 256, size=4 * 1024 * 1024, dtype=np.uint8)
    return np.resize(block, call + _SHIFTS) if call + _SHIFTS > block.size else block
