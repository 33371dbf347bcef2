"""Saver of a described job's state: the tensors of one rank, written by a library to one file after the other."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.cached_pages import drop_pages
from dlio_torch.checkpoint.layouts.described_state.state_content import first_problem, make_content
from dlio_torch.checkpoint.layouts.described_state.state_file import StateFile, tensor_bytes
from dlio_torch.checkpoint.layouts.synchronous_saver import SynchronousSaver
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.checkpoint.torch_files import NOT_RESTORED
from dlio_torch.checkpoint.write_errors import cannot_write
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.files.atomic_file import fsync_path
from dlio_torch.syserrors import unreadable
from dlio_torch.units import format_size


@dataclass(frozen=True)
class Commit:
    """Cost of completing a checkpoint.

    Attributes:
        bytes: bytes of files that were written.
        write_s: seconds of writing, and of reading what is written once more.
        fsync_s: seconds of flushing.
    """

    bytes: int = 0
    write_s: float = 0.0
    fsync_s: float = 0.0


def flush(paths: Iterable[Path]) -> float:
    """Flush files and folders to the device; returns the seconds."""
    start = time.perf_counter_ns()
    for path in paths:
        fsync_path(path)
    return (time.perf_counter_ns() - start) / 1e9


class StateLibrary(ABC):
    """Library that writes and reads the files, and the rule by which its checkpoints are complete."""

    def named(self, path: Path) -> AbstractContextManager[Path]:
        """Context in which a file is written and flushed; gives the name to write to, which is the final one."""
        return contextlib.nullcontext(path)

    @abstractmethod
    def write(self, content: Any, path: Path) -> None:
        """Write a file.

        Args:
            content: of the file, with its tensors.
            path: the name from :meth:`named`.

        Raises:
            OSError, RuntimeError: the file cannot be written; torch's writer raises RuntimeError.
        """

    @abstractmethod
    def load(self, path: Path) -> Any:
        """Read a file.

        Raises:
            DataError: the file is damaged.
            OSError: the system cannot read it.
        """

    @abstractmethod
    def commit(self, step: int, *, fsync: bool) -> Commit:
        """Complete the checkpoint, once this rank has written its files.

        Args:
            step: of the checkpoint.
            fsync: whether files are flushed to the device.

        Raises:
            OSError: a file cannot be written.
        """

    def close(self) -> None:  # noqa: B027 - most libraries hold nothing between checkpoints
        """Give back what the library holds between checkpoints."""

    def completing_files(self, step: int) -> list[Path]:
        """Files of a checkpoint that :meth:`commit` writes on this rank, and that go with it."""
        return []

    @abstractmethod
    def check_complete(self, directory: Path, step: int) -> None:
        """Refuse a checkpoint whose save did not end.

        Args:
            directory: folder of the checkpoints of all ranks.
            step: of the checkpoint.

        Raises:
            DataError: the checkpoint is not complete.
        """


class StateSaver(SynchronousSaver):
    """Writes and reads the files of one rank.

    Args:
        setup: settings of the saver.
        library: writes and reads a file.
        files: files that this rank writes.
        read_files: files that this rank reads; some may be written by other ranks.

    Raises:
        PreconditionError: the tensors do not fit into memory.
    """

    def __init__(
        self, setup: SaverSetup, library: StateLibrary, files: Sequence[StateFile], read_files: Sequence[StateFile]
    ) -> None:
        super().__init__()
        self._setup = setup
        self._library = library
        self._files = files
        self._read_files = read_files
        try:
            self._contents = [make_content(file.content, setup.config.seed) for file in files]
        except (MemoryError, RuntimeError) as error:
            raise PreconditionError(
                f"the state of this rank, {format_size(tensor_bytes(files))}, does not fit into memory",
                hint="lower model.num_layers, or raise the degrees of parallel",
            ) from error

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        start, written, write_s, fsync_s = time.perf_counter_ns(), 0, 0.0, 0.0
        path = self._setup.directory
        try:
            for file, content in zip(self._files, self._contents, strict=True):
                path = file.path(self._setup.directory, step)
                size, wrote, flushing = self._save_file(file, content, step, fsync=fsync)
                written, write_s, fsync_s = written + size, write_s + wrote, fsync_s + flushing
            if fsync:
                fsync_s += self._flush_names(step)
            commit = self._library.commit(step, fsync=fsync)
        except (OSError, RuntimeError) as error:
            refusal = cannot_write(path, tensor_bytes(self._files), error)
            self.discard(step)
            raise refusal from error
        spent = (time.perf_counter_ns() - start) / 1e9
        flushed, size = fsync_s + commit.fsync_s if fsync else None, written + commit.bytes
        write_s += commit.write_s
        self._finished.append(SaveTimes(step, start, spent, spent, size, write_s=write_s, fsync_s=flushed))

    def close(self) -> None:
        self._library.close()

    def discard(self, step: int) -> None:
        """Delete this rank's files of a checkpoint, without those that the next checkpoint replaces.

        The last rank to do so deletes their folder.
        """
        replaced = {file.path(self._setup.directory, step) for file in self._files if "{step}" not in file.name}
        paths = [path for path in self._paths(step) if path not in replaced]
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
        for folder in sorted(self._folders(paths), reverse=True):  # inner ones first
            with contextlib.suppress(OSError):  # files of other ranks, or gone
                folder.rmdir()

    def drop_cached_pages(self, step: int) -> None:
        drop_pages(self._paths(step))

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        """Read a checkpoint; each tensor is verified after its file was read, outside of the times."""
        start = time.perf_counter_ns()
        self._library.check_complete(directory, step)
        metadata_s = (time.perf_counter_ns() - start) / 1e9
        model_only = self._setup.config.checkpoint.restore_part == "model"
        size, read_s = 0, 0.0
        for file in self._read_files:
            if not (model_only and file.optimizer_only):
                count, spent = self._restore_file(file, file.path(directory, step), model_only)
                size, read_s = size + count, read_s + spent
        return RestoreTimes(metadata_s + read_s, size, metadata_s=metadata_s, read_s=read_s)

    def _save_file(self, file: StateFile, content: Any, step: int, *, fsync: bool) -> tuple[int, float, float]:
        """Write a file; returns its size, and the seconds of writing and of flushing."""
        path, recorder = file.path(self._setup.directory, step), self._setup.recorder
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.step_key:
            content = content | {file.step_key: step}
        start = time.perf_counter_ns()
        with self._library.named(path) as target:
            with recorder.span("write", step=step, file=str(path), bytes=file.bytes):
                self._library.write(content, target)
            wrote, size = time.perf_counter_ns(), target.stat().st_size
            if fsync:
                with recorder.span("fsync", step=step, file=str(path), bytes=size):
                    fsync_path(target)
            flushed = time.perf_counter_ns()
        return size, (wrote - start) / 1e9, (flushed - wrote) / 1e9

    def _flush_names(self, step: int) -> float:
        """Flush the folders that hold the names; returns the seconds."""
        paths = [file.path(self._setup.directory, step) for file in self._files]
        return flush(sorted(self._folders(paths) | {self._setup.directory})) if paths else 0.0

    def _paths(self, step: int) -> list[Path]:
        """All files of this rank, first those without which the checkpoint is not complete."""
        files = [file.path(self._setup.directory, step) for file in self._files]
        return self._library.completing_files(step) + files

    def _folders(self, paths: Sequence[Path]) -> set[Path]:
        """Folders of these files below that of all checkpoints."""
        root = self._setup.directory
        return {folder for path in paths for folder in path.parents if folder != root and folder.is_relative_to(root)}

    def _restore_file(self, file: StateFile, path: Path, model_only: bool) -> tuple[int, float]:
        """Read and verify a file; returns its size and the seconds of reading."""
        start = time.perf_counter_ns()
        try:
            with self._setup.recorder.span("read", file=str(path), bytes=file.bytes):
                loaded, size = self._library.load(path), path.stat().st_size
        except OSError as error:
            raise unreadable(f"checkpoint file {path}", error) from error
        spent = (time.perf_counter_ns() - start) / 1e9
        problem = first_problem(file.content, loaded, self._setup.config.seed, model_only=model_only)
        if problem is not None:
            raise DataError(f"checkpoint file {path} holds another state: {problem}", hint=NOT_RESTORED)
        return size, spent
