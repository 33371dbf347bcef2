"""Contracts of checkpoint layouts (which files each rank saves, of how many bytes) and of the savers that write them.

A layout costs nothing to import: libraries, torch included, are imported by :meth:`Layout.open`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from dlio_torch.checkpoint.job.rank_classes import rank_classes
from dlio_torch.config.schema import Config

if TYPE_CHECKING:
    from dlio_torch.checkpoint.plan_cost import PlanCost
    from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
    from dlio_torch.dist.base import Communicator
    from dlio_torch.iotrace.recorder.spans import Recorder


COMMON_OPTIONS = frozenset(
    {
        "layout",
        "root",
        "every_steps",
        "every_epochs",
        "before_first",
        "after_last",
        "fsync",
        "keep",
        "restore",
        "mtbf_s",
        "restart_s",
    }
)
"""Options of ``checkpoint`` that all layouts have."""


@dataclass(frozen=True)
class SaverSetup:
    """Settings of a saver.

    Attributes:
        config: the experiment.
        directory: folder of the checkpoints of all ranks; made when needed.
        comm: the ranks.
        recorder: records a span ``write``, ``fsync`` or ``read`` per file.
    """

    config: Config
    directory: Path
    comm: Communicator
    recorder: Recorder


class Saver(Protocol):
    """Writes and reads the checkpoints of one rank.

    All ranks that save call the same methods in the same order.  Content is made when the saver is made, outside of
    timed parts.
    """

    def begin(self) -> int:
        """Write what the application writes before its first checkpoint.

        Returns:
            Bytes written.

        Raises:
            DlioError: a file cannot be written.
        """

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        """Save a checkpoint; returns when the training may go on.

        Args:
            step: training steps done since the run began.
            kept: steps of older checkpoints that stay.
            surplus: steps of older checkpoints that are deleted when this one is complete; the caller calls
                ``discard`` for each of them.
            fsync: whether the files are flushed to the device.

        Raises:
            DlioError: a file cannot be written (see :mod:`dlio_torch.syserrors`); new files of this checkpoint are
                deleted, files that it replaces stay.
        """

    def finished(self) -> list[SaveTimes]:
        """Saves that have become complete on this rank since the last call, in the order of their begin.

        Raises:
            DlioError: a save in the background failed.
        """

    def wait(self) -> None:
        """Wait until no save runs in the background.

        Raises:
            DlioError: a save in the background failed.
        """

    def discard(self, step: int) -> None:
        """Delete this rank's files of a checkpoint; files that are missing are no error."""

    def drop_cached_pages(self, step: int) -> None:
        """Drop this rank's files of a checkpoint from the page cache; they have been flushed.

        Raises:
            DlioError: a file cannot be opened.
        """

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        """Read a checkpoint.

        Args:
            directory: folder of the checkpoints of the run that saved it.
            step: its step.

        Raises:
            DataError: a file is missing or damaged, or the checkpoint is of another model or layout.
        """

    def close(self) -> None:
        """Close what is open between checkpoints.

        Raises:
            DlioError: the last bytes cannot be written.
        """


@runtime_checkable
class SavesInProcesses(Protocol):
    """A saver that has other processes write, or stage, its checkpoints."""

    def processes(self) -> Sequence[int]:
        """Ids of the processes that live now; their memory counts as memory of the saves."""


class Layout(ABC):
    """Layout of checkpoints.

    Attributes:
        options: options of ``checkpoint`` that this layout reads, without :data:`COMMON_OPTIONS`; others are refused.
        needs_model: whether the groups ``model`` and ``parallel`` describe what is saved.
    """

    options: ClassVar[frozenset[str]] = frozenset()
    needs_model: ClassVar[bool] = False

    def saving_ranks(self, config: Config, world_size: int) -> int:
        """Number of ranks that save; the first ones."""
        return world_size if self.needs_model or config.checkpoint.ranks == "all" else 1

    def saves_job(self, config: Config) -> bool:
        """Whether the described job says what each rank saves."""
        return self.needs_model

    @abstractmethod
    def file_names(self, config: Config) -> list[str]:
        """Entries for the files of the checkpoints of all ranks (see :mod:`dlio_torch.ownership.names`)."""

    @abstractmethod
    def saved_bytes(self, config: Config, rank: int) -> int:
        """Bytes that one checkpoint of a rank takes on the storage."""

    @abstractmethod
    def held_bytes(self, config: Config, rank: int) -> int:
        """Bytes of memory that a rank holds to save checkpoints."""

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        """Sizes of the files that one checkpoint of a rank has; together ``saved_bytes``."""
        return [self.saved_bytes(config, rank)]

    def rank_groups(self, config: Config, count: int) -> list[list[int]]:
        """Ranks 0 to ``count`` - 1 of the described job in groups, each of ranks whose files have equal sizes."""
        return rank_classes(config.model, config.parallel, count)

    def plan_cost(self, config: Config) -> PlanCost | None:
        """Plans the checkpoint of at most ``checkpoint.planned_ranks`` ranks of the described job; nothing is written.

        Returns:
            The measured cost; ``None``: ranks of this layout need no common plan.
        """
        return None

    def replaced_bytes(self, config: Config) -> list[int]:
        """Sizes of a rank's files that each checkpoint replaces, which are part of ``saved_bytes``."""
        return []

    def start_bytes(self, config: Config) -> int:
        """Bytes written once, before the first checkpoint."""
        return 0

    def flushes(self, config: Config) -> bool:
        """Whether a save flushes its files to the device."""
        return config.checkpoint.fsync

    def check(self, config: Config) -> None:
        """Refuse what this machine cannot do, before anything is written.

        Raises:
            PreconditionError: with the way out.
        """
        return

    @abstractmethod
    def open(self, setup: SaverSetup) -> Saver:
        """Makes the saver of one rank.

        Raises:
            ConfigError: values of options that do not fit together.
            PreconditionError: the content does not fit into memory, or a library is missing.
        """
