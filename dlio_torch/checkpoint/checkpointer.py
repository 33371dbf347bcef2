"""Checkpoints of one rank: an application's files written call by call, or ``torch.save`` of a state.

Each file is written under a temporary name in the folder of its final name, flushed to the device
where that is asked for, and renamed: a reader never sees half a file.  With ``ranks=all`` each rank
saves below its own folder ``rank-<r>``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from dlio_torch.checkpoint.checkpoint_files import CheckpointFile, cannot_write, files_of
from dlio_torch.checkpoint.checkpoint_reader import CheckpointReader
from dlio_torch.checkpoint.checkpoint_writer import CheckpointWriter
from dlio_torch.checkpoint.position import SavedPositions, TrainingPosition
from dlio_torch.checkpoint.tensorflow_saver import TensorFlowSaver
from dlio_torch.config.checkpoint_amount import start_bytes
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.files.atomic_file import fsync_path
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.supervision.watchdog import Watchdog
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size


class Checkpointer:
    """Saves and restores the checkpoints of one rank.

    A checkpoint of ``layout=files`` is the configured files, in their order; where ``{step}`` is in the
    name, each checkpoint is a file of its own, otherwise the file is replaced.  A checkpoint of
    ``layout=torch_save`` is ``checkpoint-<step>.pt``.  See
    :class:`dlio_torch.checkpoint.checkpoint_writer.CheckpointWriter` for their content,
    :class:`dlio_torch.checkpoint.checkpoint_reader.CheckpointReader` for how they are read.

    A checkpoint of ``layout=tensorflow`` is what TensorFlow's Saver writes: see
    :mod:`dlio_torch.checkpoint.tensorflow_saver`.

    Buffers and state are made here, outside of any timed part.

    Args:
        config: what is saved, when, by whom.
        directory: folder of the checkpoints; made when needed.
        rank: number of this process.
        recorder: records a span ``write``, ``fsync`` or ``read`` per file.
        watchdog: prints a line when a save takes long; the caller starts it.
        positions: stores the position of the training at each checkpoint that is kept.
        restores: folder and step of another run's checkpoint, which :meth:`restore` reads.

    Raises:
        ConfigError: two files have one name.
        PreconditionError: the state does not fit into memory.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        directory: Path | str,
        rank: int,
        recorder: Recorder | None = None,
        watchdog: Watchdog | None = None,
        positions: SavedPositions | None = None,
        restores: tuple[Path, int] | None = None,
    ) -> None:
        self.config = config
        self._watchdog = watchdog
        self.rank = rank
        self.saves = config.layout != "none" and (rank == 0 or config.ranks == "all")
        """Whether this rank saves at all."""
        folder = f"rank-{rank}" if config.ranks == "all" else ""
        self.directory = Path(directory) / folder
        self._recorder = NULL if recorder is None else recorder
        self._positions = positions
        self._restores = None if restores is None else (restores[0] / folder, restores[1])
        self._kept: list[int] = []  # steps whose checkpoints lie in the folder, oldest first
        self._restorable: int | None = None
        self._files = files_of(config)
        self._tensorflow: TensorFlowSaver | None = None
        if not self.saves:
            return
        try:
            self._writer = CheckpointWriter(config, self._files, self._recorder)
            if config.layout == "tensorflow":
                content = self._writer.content
                self._tensorflow = TensorFlowSaver(config.tensorflow, config.state_bytes, self.directory, content)
        except OSError as error:
            raise refused("the size of a checkpoint cannot be tried out", error) from error
        except (MemoryError, RuntimeError) as error:
            raise PreconditionError(
                f"a checkpoint of {format_size(sum(file.size for file in self._files))} does not fit into memory",
                hint="lower checkpoint.state_bytes, or set checkpoint.files[].write_bytes",
            ) from error
        self._reader = CheckpointReader(config, self._files, self._recorder, self._writer.state.keys())

    def due(self, epoch: int, step: int, last_of_epoch: bool) -> bool:
        """Whether this rank saves after this step.

        Args:
            epoch: number of the epoch, from 1.
            step: training steps done since the run began, this one included.
            last_of_epoch: whether this is the last step of its epoch.
        """
        by_step = self.config.every_steps > 0 and step % self.config.every_steps == 0
        by_epoch = self.config.every_epochs > 0 and last_of_epoch and epoch % self.config.every_epochs == 0
        return self.saves and (by_step or by_epoch)

    def begin(self, step: int, place: TrainingPosition | None = None) -> tuple[int, int]:
        """Write what the application writes before its first step.

        Args:
            step: training steps done since the run began.
            place: position of the training.

        Returns:
            Checkpoints saved, and bytes written.

        Raises:
            DlioError: as :meth:`save`.
        """
        if not self.saves:
            return 0, 0
        written = 0
        if self._tensorflow is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                written = self._tensorflow.begin()
            except OSError as error:
                raise cannot_write(self.directory, start_bytes(self.config), error) from error
        if not self.config.before_first:
            return 0, written
        return 1, written + self.save(step, place)

    def end(self, step: int, place: TrainingPosition | None = None) -> tuple[int, int]:
        """Write what the application writes after its last step; arguments and results as of :meth:`begin`."""
        if not self.saves:
            return 0, 0
        missing = self.config.after_last and step not in self._kept
        written = self.save(step, place) if missing else 0
        return int(missing), written

    def close(self) -> None:
        """Close what is open between checkpoints.

        Raises:
            DlioError: the last bytes cannot be written.
        """
        if self._tensorflow is not None:
            try:
                self._tensorflow.close()
            except OSError as error:
                raise cannot_write(self.directory, 0, error) from error

    def save(self, step: int, place: TrainingPosition | None = None) -> int:
        """Write the checkpoint of ``step``, then delete the ones that are not kept.

        Args:
            step: training steps done since the run began.
            place: position of the training, stored when the checkpoint is complete.

        Returns:
            Bytes written; 0 on a rank that does not save.

        Raises:
            DlioError: a file cannot be written (see :mod:`dlio_torch.syserrors`); new files of this checkpoint are
                deleted, files that it replaced stay.
        """
        if not self.saves:
            return 0
        if self._watchdog is None:
            return self._save(step, fsync=self.config.fsync, place=place)
        with self._watchdog:
            return self._save(step, fsync=self.config.fsync, place=place)

    def prepare_restore(self) -> None:
        """Write the checkpoint that :meth:`restore` reads, as step 0, and drop it from the page cache.

        A restarted job reads its checkpoint from storage.  On a file system that keeps cached pages the reads come
        from the cache.  Call it outside of timed parts.
        """
        if not self.saves or self._restores is not None:
            return
        # Pages that are not on the device yet cannot be dropped.
        self._save(0, fsync=True)
        self._restorable = 0
        self._reader.drop_cached_pages(self.directory, 0)

    def restore(self) -> int:
        """Read the checkpoint of another run if one was named, else the prepared one, else the newest.

        Returns:
            Bytes read; 0 on a rank that does not save.

        Raises:
            DataError: there is no checkpoint, or a file of it is damaged.
        """
        if not self.saves:
            return 0
        if self._restores is not None:
            return self._reader.read(*self._restores)
        step = self._restorable if self._restorable is not None else (self._kept[-1] if self._kept else None)
        if step is None:
            raise DataError(f"there is no checkpoint in {self.directory} to restore", hint="prepare or save one first")
        return self._reader.read(self.directory, step)

    # --- writing ----------------------------------------------------------------------------------

    def _save(self, step: int, *, fsync: bool, place: TrainingPosition | None = None) -> int:
        if self._tensorflow is not None:
            return self._save_tensorflow(self._tensorflow, step, fsync=fsync, place=place)
        total = 0
        done: list[Path] = []
        for file in self._files:
            path = self._path(file, step)
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                total += self._writer.write(path, file, step, fsync=fsync)
            except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
                self._discard([file for file in done if file not in self._fixed()])
                raise cannot_write(path, file.size, error) from error
            done.append(path)
        if fsync and done:
            try:
                fsync_path(self.directory)  # the names
            except OSError as error:
                raise refused(f"the checkpoints in {self.directory} cannot be flushed", error) from error
        old, self._kept = self._surplus(step)
        if self._positions is not None and place is not None:
            self._positions.write(step, place, [step] if self._fixed() else self._kept)
        for number in old:
            self._discard([self._path(file, number) for file in self._files if "{step}" in file.name])
        return total

    def _save_tensorflow(
        self, saver: TensorFlowSaver, step: int, *, fsync: bool, place: TrainingPosition | None
    ) -> int:
        old, kept = self._surplus(step)
        size = sum(file.size for file in self._files)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._recorder.span("write", step=step, file=str(self._path(self._files[0], step)), bytes=size):
                written = saver.save(step, kept[:-1], old)
            for path in (*saver.names(step), self.directory) if fsync else ():
                fsync_path(path)
        except OSError as error:
            saver.discard(step)
            raise cannot_write(self._path(self._files[0], step), size, error) from error
        self._kept = kept
        if self._positions is not None and place is not None:
            self._positions.write(step, place, kept)
        return written

    def _surplus(self, step: int) -> tuple[list[int], list[int]]:
        """Steps of the checkpoints to delete, and of those to keep, when the checkpoint of ``step`` is complete."""
        steps = [*(other for other in self._kept if other != step), step]
        surplus = max(0, len(steps) - self.config.keep) if self.config.keep else 0
        return steps[:surplus], steps[surplus:]

    # --- names ------------------------------------------------------------------------------------

    def _path(self, file: CheckpointFile, step: int) -> Path:
        return file.path(self.directory, step)

    def _fixed(self) -> set[Path]:
        return {self._path(file, 0) for file in self._files if "{step}" not in file.name}

    def _discard(self, paths: list[Path]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
