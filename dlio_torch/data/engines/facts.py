"""Facts about loader engines, such as their demand of resources, for code that does not create an engine.

Checks, plans, tuning, advice and job scripts know engines by this protocol alone.  Each engine subclasses
:class:`EngineFacts` in its ``facts.py``; the registry names that class.  A module of facts does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dlio_torch.formats.core.facts import Axis, Call, Unused

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config, LoaderConfig


@dataclass(frozen=True)
class Demand:
    """Machine resources that a loader needs for one rank.

    Attributes:
        workers: worker processes.
        threads: reader threads, in the rank's own process or in each of its workers; 0: none beside the main thread.
        batches_ahead: batches that are read ahead of the trainer; 0 where bytes are counted.
        bytes_ahead: bytes of batches that are read ahead; ``None``: batches are counted.
        memory_keys: options that decide how much memory batches take.
        least_of_worker: batches that each worker may read ahead, however large they are, where bytes are counted.
    """

    workers: int
    threads: int
    batches_ahead: int
    bytes_ahead: int | None
    memory_keys: tuple[str, ...]
    least_of_worker: int = 1

    @property
    def readers(self) -> int:
        """Number of processes and threads that read at once; 0: only the trainer's thread reads."""
        return self.workers * max(1, self.threads) or self.threads

    @property
    def tasks(self) -> int:
        """Number of processes and threads in addition to the trainer's thread."""
        return self.workers + (self.workers or 1) * self.threads

    def window(self, batch_bytes: float) -> int:
        """Number of batches that are read ahead of the trainer; workers share bytes evenly.

        Args:
            batch_bytes: bytes of one batch; 0: not known.
        """
        if self.bytes_ahead is None or not batch_bytes:
            return self.batches_ahead
        shares, least = max(1, self.workers), self.least_of_worker if self.workers else 1
        return shares * max(least, int(self.bytes_ahead // shares / batch_bytes))

    def held_bytes(self, batch_bytes: float, batches: int | None = None) -> float:
        """Bytes of batches that a rank holds at once: prefetched batches and the batch in training.

        Args:
            batch_bytes: bytes of one batch.
            batches: batches that there are at the most; ``None``: no limit.
        """
        if self.bytes_ahead is not None:
            return max(self.bytes_ahead, self.workers * self.least_of_worker * batch_bytes) + batch_bytes
        ahead = self.batches_ahead if batches is None else min(self.batches_ahead, batches)
        return (ahead + 1) * batch_bytes


class EngineFacts:
    """Base of facts about an engine; the defaults are those of torch's DataLoader.

    Attributes:
        name: the name in ``loader.engine``.
        builder: ``module:function`` that makes the engine, imported at its first use; see
            :data:`~dlio_torch.data.engines.registry.Builder`.
        library_class: class of torch or torchdata whose batches it delivers; empty: none, it reads by itself.
        reads_ranges: it reads byte ranges of files itself, by their layout, and cuts batches where they were read to.
        streams: it takes ``access.pattern=stream`` and ``lanes``.
        pipes: it takes ``loader.style=pipe``.
        keeps_workers: it can keep workers between epochs.
        threads_in_workers: it can have reader threads in worker processes.
        main_thread: without workers and threads the rank's main thread reads, as MPI-IO needs it.
        own_options: options of ``loader`` that no other engine has.
        worker_descriptors: open files of the trainer for each worker: two pipes to start and watch it, and its queues.
        tensor_descriptors: each tensor of a batch comes from a worker by a descriptor of its own.
    """

    name: ClassVar[str]
    builder: ClassVar[str]
    library_class: ClassVar[str] = ""
    reads_ranges: ClassVar[bool] = False
    streams: ClassVar[bool] = True
    pipes: ClassVar[bool] = True
    keeps_workers: ClassVar[bool] = True
    threads_in_workers: ClassVar[bool] = False
    main_thread: ClassVar[bool] = True
    own_options: ClassVar[tuple[str, ...]] = ()
    worker_descriptors: ClassVar[int] = 4
    tensor_descriptors: ClassVar[bool] = True

    def demand(self, loader: LoaderConfig) -> Demand:
        """Machine resources that the engine needs for one rank."""
        ahead, keys = 0, list[str]()
        if loader.num_workers:
            ahead, keys = loader.num_workers * loader.prefetched, ["loader.prefetch_factor", "loader.num_workers"]
        elif loader.read_threads:
            ahead, keys = loader.prefetch_batches, ["loader.prefetch_batches"]
        return Demand(loader.num_workers, loader.read_threads, ahead, None, tuple(keys))

    def counts_bytes(self, loader: LoaderConfig) -> bool:
        """Whether the engine limits its read-ahead by bytes instead of batches."""
        return self.demand(loader).bytes_ahead is not None

    def check(self, config: Config, fail: Fail) -> None:
        """Raise if the engine cannot follow the configuration.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def unused(self, config: Config) -> Iterator[Unused]:
        """Options whose value the engine does not accept."""
        return iter(())

    def axes(self, config: Config, cores: int) -> Sequence[Axis] | None:
        """Engine options to try in a study; ``None``: worker processes, threads and prefetch depth.

        Args:
            config: of the recipe.
            cores: that each rank may use.
        """
        return None

    def call(self, config: Config) -> Call | None:
        """Call that creates such a loader, as text; ``None``: the constructor of torch or torchdata."""
        return None
