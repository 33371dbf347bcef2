"""Checkpoints of one rank: when they are saved, which are kept, and which is restored.

A saver (see :class:`dlio_torch.checkpoint.base.Saver`) writes and reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dlio_torch.checkpoint.base import Saver, SaverSetup, SavesInProcesses
from dlio_torch.checkpoint.position import SavedPositions, TrainingPosition
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.checkpoint.save_memory import SaveMemory
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import DataError
from dlio_torch.supervision.watchdog import Watchdog


class Checkpointer:
    """Saves and restores the checkpoints of one rank.

    Args:
        config: when checkpoints are saved, and how many are kept.
        directory: folder of the checkpoints of all ranks.
        saver: writes and reads them; ``None`` on a rank that does not save.
        replaces: whether a checkpoint replaces files of the one before, which then is incomplete.
        watchdog: prints a line when a save takes long; the caller starts it.
        positions: stores the position of the training at each checkpoint that is kept.
        restores: folder and step of another run's checkpoint, which :meth:`restore` reads.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        directory: Path,
        saver: Saver | None,
        replaces: bool = False,
        watchdog: Watchdog | None = None,
        positions: SavedPositions | None = None,
        restores: tuple[Path, int] | None = None,
    ) -> None:
        self.config = config
        self.saves = saver is not None
        """Whether this rank saves at all."""
        self.times: list[SaveTimes] = []
        """Times of the complete saves, in the order of their begin."""
        self.start_bytes = 0
        """Bytes written before the first checkpoint."""
        self._saver = saver
        self._memory = SaveMemory(self._processes)
        self._replaces = replaces
        self._directory = directory
        self._watchdog = watchdog
        self._positions = positions
        self._restores = restores
        self._kept: list[int] = []  # steps of complete checkpoints, oldest first
        self._begun: dict[int, TrainingPosition | None] = {}  # positions of saves that are not complete
        self._restorable: int | None = None

    @property
    def written_bytes(self) -> int:
        """Bytes of the complete checkpoints, and of what was written before the first."""
        return self.start_bytes + sum(times.bytes for times in self.times)

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory of saves, see :class:`dlio_torch.checkpoint.save_memory.SaveMemory`."""
        return self._memory.peak_bytes

    def due(self, epoch: int, step: int, last_of_epoch: bool) -> bool:
        """Whether this rank saves after this step.

        Args:
            epoch: number of the epoch, from 1.
            step: training steps done since the run began, this one included.
            last_of_epoch: whether this is the last step of its epoch.
        """
        if self._begun:
            self._take_finished()
        if self._begun:
            self._memory.sample()
        by_step = self.config.every_steps > 0 and step % self.config.every_steps == 0
        by_epoch = self.config.every_epochs > 0 and last_of_epoch and epoch % self.config.every_epochs == 0
        return self.saves and (by_step or by_epoch)

    def begin(self, step: int, place: TrainingPosition | None = None) -> None:
        """Write what the application writes before its first step.

        Args:
            step: training steps done since the run began.
            place: position of the training.

        Raises:
            DlioError: as :meth:`save`.
        """
        if self._saver is None:
            return
        self.start_bytes = self._saver.begin()
        if self.config.before_first:
            self.save(step, place)

    def end(self, step: int, place: TrainingPosition | None = None) -> None:
        """Write what the application writes after its last step, and wait for saves in the background.

        Arguments and errors are those of :meth:`begin`.
        """
        if self._saver is None:
            return
        if self.config.after_last and step not in (*self._kept, *self._begun):
            self.save(step, place)
        self.wait()

    def save(self, step: int, place: TrainingPosition | None = None) -> None:
        """Save the checkpoint of ``step``; once it is complete, delete the ones that are not kept.

        Args:
            step: training steps done since the run began.
            place: position of the training, stored when the checkpoint is complete.

        Raises:
            DlioError: a file cannot be written (see :mod:`dlio_torch.syserrors`); new files of this checkpoint are
                deleted, files that it replaced stay.
        """
        if self._saver is None:
            return
        if not self._begun:
            self._memory.begin()
        with self._watchdog or contextlib.nullcontext():
            self._save(self._saver, step, place, fsync=self.config.fsync)
        if self._begun:
            self._memory.sample(at_once=True)
        else:
            self._memory.end_synchronous()

    def wait(self) -> None:
        """Wait until no save runs in the background.

        Raises:
            DlioError: a save in the background failed.
        """
        if self._saver is not None:
            self._saver.wait()
            self._take_finished()

    def prepare_restore(self) -> None:
        """Write the checkpoint that :meth:`restore` reads, as step 0, and drop it from the page cache.

        A restarted job reads its checkpoint from storage.  On a file system that keeps cached pages the reads come
        from the cache.  Call it outside of timed parts.

        Raises:
            DlioError: as :meth:`save`.
        """
        if self._saver is None or self._restores is not None:
            return
        # Pages that are not on the device yet cannot be dropped.
        self._save(self._saver, 0, None, fsync=True)
        self.wait()
        self.times.clear()  # no save of the training
        self._restorable = 0
        self._saver.drop_cached_pages(0)

    def restore(self) -> RestoreTimes | None:
        """Read the checkpoint of another run if one was named, else the prepared one, else the newest.

        Returns:
            Times and bytes; ``None`` on a rank that does not save.

        Raises:
            DataError: there is no checkpoint, or a file of it is damaged.
        """
        if self._saver is None:
            return None
        if self._restores is not None:
            return self._saver.restore(*self._restores)
        step = self._restorable if self._restorable is not None else (self._kept[-1] if self._kept else None)
        if step is None:
            raise DataError(f"there is no checkpoint in {self._directory} to restore", hint="prepare or save one first")
        return self.read(step)

    def read(self, step: int) -> RestoreTimes | None:
        """Read a checkpoint that this run saved and kept.

        Args:
            step: of the checkpoint.

        Returns:
            Times and bytes; ``None`` on a rank that does not save.

        Raises:
            DataError: a file of it is missing or damaged.
        """
        return None if self._saver is None else self._saver.restore(self._directory, step)

    def close(self) -> None:
        """Close what is open between checkpoints.

        Raises:
            DlioError: the last bytes cannot be written.
        """
        if self._saver is not None:
            self._saver.close()

    def _processes(self) -> Sequence[int]:
        """Processes of the saver, this one left out."""
        return self._saver.processes() if isinstance(self._saver, SavesInProcesses) else ()

    def _save(self, saver: Saver, step: int, place: TrainingPosition | None, *, fsync: bool) -> None:
        surplus, kept = self._retention(step)
        self._begun[step] = place
        try:
            saver.save(step, kept[:-1], surplus, fsync=fsync)
        except BaseException:
            del self._begun[step]
            raise
        self._take_finished()

    def _take_finished(self) -> None:
        """Record the positions of saves that have become complete, then delete surplus checkpoints."""
        assert self._saver is not None
        for times in self._saver.finished():
            self.times.append(times)
            surplus, self._kept = self._retention(times.step)
            place = self._begun.pop(times.step)
            if self._positions is not None and place is not None:
                self._positions.write(times.step, place, [times.step] if self._replaces else self._kept)
            for step in surplus:
                self._saver.discard(step)

    def _retention(self, step: int) -> tuple[list[int], list[int]]:
        """Steps of the checkpoints to delete, and of those to keep, when the checkpoint of ``step`` is complete."""
        steps = [*(other for other in self._kept if other != step), step]
        surplus = max(0, len(steps) - self.config.keep) if self.config.keep else 0
        return steps[:surplus], steps[surplus:]


def open_checkpointer(
    setup: SaverSetup,
    watchdog: Watchdog | None = None,
    positions: SavedPositions | None = None,
    restores: tuple[Path, int] | None = None,
) -> Checkpointer:
    """Makes the checkpointer of one rank; content of checkpoints is made here, outside of any timed part.

    Args:
        setup: settings of the saver.
        watchdog: prints a line when a save takes long; the caller starts it.
        positions: stores the position of the training at each checkpoint that is kept.
        restores: folder and step of another run's checkpoint, which a restore reads.

    Raises:
        ConfigError: values of options do not fit together.
        PreconditionError: the content does not fit into memory, or a library is missing.
    """
    config, comm = setup.config, setup.comm
    layout = layout_of(config.checkpoint.layout)
    saver, replaces = None, False
    if layout is not None:
        replaces = bool(layout.replaced_bytes(config))
        if comm.rank < layout.saving_ranks(config, comm.world_size):
            saver = layout.open(setup)
    return Checkpointer(config.checkpoint, setup.directory, saver, replaces, watchdog, positions, restores)
