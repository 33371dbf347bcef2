"""Sampler: the sample numbers of each batch of a rank.

A sampler is the product of an *order* (how the indices of a range follow each other) and a
*partition* (which part of the indices a rank gets).  Every share is one contiguous range of sample
indices, ``[first, first + count)``, because samples are numbered file by file; an order is a map
from a position ``0 .. count - 1`` to an offset in that range.  A batch is therefore a pure function
of ``(seed, epoch, step, rank)``, which is what makes resuming and checking cheap.

============== ==================================== ====================================
partition      share of rank r                      batch of rank r in step t
============== ==================================== ====================================
``batches``    all samples                          r-th of ``world_size`` consecutive
                                                    parts of the t-th global batch
``slices``     r-th contiguous slice, sizes differ  t-th batch of its own share
               by at most one sample
``files``      r-th contiguous run of whole files,  t-th batch of its own share
               file counts differ by at most one
``none``       all samples                          t-th batch: the same on every rank
============== ==================================== ====================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.order import orders
from dlio_torch.data.order.orders import Indices
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError
from dlio_torch.units import counted


class BatchSampler(Sampler[list[int]]):
    """Batch sampler that yields the sample indices of one batch of this rank at a time, for a DataLoader.

    Orders (``n`` is the number of samples of the share):

    * ``sequential``: by index.  Takes no memory per sample.
    * ``shuffled``: a permutation of the share, a function of seed, epoch and the share alone; ranks
      that share all samples (``batches``, ``none``) use the same one.  Takes 4 bytes per sample that
      this rank reads while an epoch runs, and 4 bytes per sample of the share for a moment at its start; of
      more than 2**24 samples the permutation is another one, which takes neither (:mod:`.permutation`).
    * ``random_blocks``: each step draws one start, uniform over the starts where the block fits, and
      reads consecutively from there; steps are drawn with replacement, from seed, epoch, step and
      the share.  With ``partition=batches`` the block is the global batch, cut into one part per rank.
    * ``strided``: ``0, s, 2s, ..., 1, s + 1, ...``: each sample once.  Takes no memory per sample.

    Every rank has the same number of steps, so that no rank waits for one that is done:

    * ``tail=drop``: as many full batches as the smallest share holds; no sample comes twice.
    * ``tail=pad``: as many batches as the largest share needs; short shares and the last batch
      continue at the start of their own order, so that each sample comes at least once.
    * ``tail=keep``: as many batches as the largest share needs; the last one is smaller, by as much on every rank, as
      with ``drop_last=False``.  So that all ranks have as many samples, short shares continue at the start of their
      own order, and with ``batches`` the last samples are completed from the start to a multiple of the ranks
      (torch's ``DistributedSampler``).
    * ``random_blocks``: as many blocks as the smallest share would hold side by side, whatever the tail.

    With ``partition=files``, ``shuffled`` permutes all samples of the rank's files together.

    Args:
        spec: order, partition and batches.
        num_samples: samples of the data set, for partitions other than ``files``.
        file_counts: samples of each file in the order of indices; replaces ``num_samples``.

    Attributes:
        spec: as given.
        num_samples: samples of the data set.
        batch_size: samples of a batch of this rank; its last one may be smaller.

    Raises:
        ConfigError: no such batches exist; names the key, its value and what the data give.
    """

    def __init__(
        self, spec: SamplerSpec, *, num_samples: int | None = None, file_counts: Sequence[int] | None = None
    ) -> None:
        if (num_samples is None) == (file_counts is None):
            raise ValueError("exactly one of num_samples and file_counts must be given")
        if spec.partition == "files" and file_counts is None:
            raise ValueError("partition='files' needs file_counts")
        counts = FileCounts.of(file_counts) if file_counts is not None else None
        self.spec = spec
        self.num_samples = counts.total if counts is not None else int(num_samples or 0)
        self.batch_size = spec.rank_batch_size()
        if spec.stride < 1:
            raise ConfigError(f"access.stride={spec.stride} must be at least 1", hint="set access.stride=1 or more")
        if self.num_samples < 1:
            raise ConfigError("the data set holds no samples", hint="raise dataset.samples_per_file")
        self._first, end, smallest, largest = self._share(counts)
        self._count = end - self._first
        self._most = largest
        # The samples that one step takes from a share.
        self._span = self.batch_size * (spec.world_size if spec.partition == "batches" else 1)
        self._steps = self._number_of_steps(smallest, largest)
        self._pattern = (
            f"{self.num_samples} samples, {spec.order}, {spec.partition}, stride {spec.stride}, {spec.tail}, "
            f"batch {self.batch_size}, seed {spec.seed}, world size {spec.world_size}, {self._steps} steps"
        )
        self._epoch = 0
        self._step = 0  # the next batch to yield
        self._resume = 0  # the first batch of the next iterator

    # --- the interface of a sampler ---------------------------------------------------------------

    def __len__(self) -> int:
        """Number of steps in an epoch, which is the same on every rank."""
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the batches of the current epoch, from its start or from a position of :meth:`load_state_dict`."""
        # DataLoaders create an iterator, drop it and create another: a state that was loaded is used
        # up by the first iterator that runs, not by the first that exists.
        self._step = self._resume
        return self._run()

    def _run(self) -> Iterator[list[int]]:
        first, self._resume = self._resume, 0
        make = self.batch_producer(self._epoch)
        for step in range(first, self._steps):
            self._step = step + 1
            yield make(step).tolist()

    @property
    def epoch(self) -> int:
        """The current epoch, which determines the order."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a position that was loaded for another epoch is discarded."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._step = self._resume = 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch, next step and access pattern, as JSON-compatible values."""
        return {"epoch": self._epoch, "step": self._step, "pattern": self._pattern}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume at a saved position: the next iterator begins with the batch that was next.

        Raises:
            ConfigError: the state belongs to another data set, order or number of ranks.
        """
        if state_dict["pattern"] != self._pattern:
            raise ConfigError(
                f"the saved position belongs to the access pattern ({state_dict['pattern']}), but this run has "
                f"({self._pattern})",
                hint="resume with the configuration and the number of ranks that saved it",
            )
        self._epoch = int(state_dict["epoch"])
        self._step = self._resume = int(state_dict["step"])

    # --- what is read -----------------------------------------------------------------------------

    def batch(self, epoch: int, step: int) -> Indices:
        """Indices of this rank's batch in ``step`` (from 0) of ``epoch``; int64 of ``(samples of the batch,)``."""
        return self.batch_producer(epoch)(step)

    @property
    def epoch_samples(self) -> int:
        """Number of samples that this rank fetches in an epoch, repeated ones included."""
        return (self._steps - 1) * self.batch_size + self._positions().size_of(self._steps - 1)

    def expected(self, epoch: int, first: int = 0) -> Indices:
        """Numbers of the samples that this rank reads in ``epoch``, ascending, each as often as it is read.

        Args:
            epoch: from 0.
            first: the step (from 0) from which on they count.
        """
        make = self.batch_producer(epoch)
        return np.sort(np.concatenate([np.zeros(0, np.int64), *(make(step) for step in range(first, self._steps))]))

    @property
    def share(self) -> range:
        """The range of sample indices that this rank draws from."""
        return range(self._first, self._first + self._count)

    # --- partition --------------------------------------------------------------------------------

    @property
    def _own_share(self) -> bool:
        return self.spec.partition in ("slices", "files")

    def _share(self, counts: FileCounts | None) -> tuple[int, int, int, int]:
        """First and end sample of this rank's share, and sizes of the smallest and the largest share.

        Nothing is reckoned for each of the other ranks, unless files differ.
        """
        ranks = self.spec.world_size
        if not self._own_share:
            return 0, self.num_samples, self.num_samples, self.num_samples
        if self.spec.partition == "slices" or counts is None:
            counts = FileCounts([1], self.num_samples)
        elif len(counts) < ranks:
            raise ConfigError(
                "access.partition=files leaves ranks without data: there are "
                f"{counted(len(counts), 'file')} for {ranks} ranks",
                hint=f"use at most {len(counts)} ranks, raise dataset.num_files, or set access.partition=slices",
            )
        mine = np.array([self.spec.rank, self.spec.rank + 1], np.int64)
        first, end = counts.before_all(_borders(len(counts), ranks, mine)).tolist()
        if counts.alike:
            smallest, largest = counts.before(len(counts) // ranks), counts.before(-(-len(counts) // ranks))
            empty = len(counts) if not smallest else None  # those with one more come first
        else:
            sizes = np.diff(counts.before_all(_borders(len(counts), ranks, np.arange(ranks + 1))))
            smallest, largest = int(sizes.min()), int(sizes.max())
            empty = int(sizes.argmin()) if not smallest else None
        if empty is not None:
            raise ConfigError(
                f"access.partition={self.spec.partition} leaves rank {empty} of {ranks} without a sample "
                f"({self.num_samples} samples in all)",
                hint="use fewer ranks or more samples",
            )
        return first, end, smallest, largest

    def _number_of_steps(self, smallest: int, largest: int) -> int:
        spec, steps, drop = self.spec, self.spec.steps, self.spec.tail == "drop"
        who = "the smallest share of a rank" if self._own_share else "the data set"
        if self._span > smallest and (drop or spec.order == "random_blocks"):
            each = f" ({self._span} on {spec.world_size} ranks)" if self._span != spec.batch_size else ""
            pad = " or access.tail=keep" if spec.order != "random_blocks" else ""
            raise ConfigError(
                f"{spec.batch_key}={spec.batch_size}{each} is larger than {who}, which has "
                f"{counted(smallest, 'sample')}",
                hint=f"use a smaller {spec.batch_key}, fewer ranks, more samples{pad}",
            )
        if spec.order == "random_blocks":
            return steps or smallest // self._span
        available = smallest // self._span if drop else -(-largest // self._span)
        if steps > available:
            raise ConfigError(
                f"{spec.steps_key}={steps}, but the data suffice only for {counted(available, 'step')} in an epoch",
                hint=f"set {spec.steps_key}=0 to use all samples, or use more samples or more epochs",
            )
        return steps or available

    # --- order ------------------------------------------------------------------------------------

    def batch_producer(self, epoch: int) -> orders.BatchProducer:
        """Returns a function from step to indices in ``epoch``, cheaper than :meth:`batch` for many steps."""
        positions = self._positions()
        key = [self.spec.seed, epoch, self._first]
        if self.spec.order == "random_blocks":
            return orders.RandomBlocks(key, self._first, positions, self._steps)
        if self.spec.order == "shuffled":
            return orders.shuffled(key, self._first, positions, self._steps)
        return orders.StridedOrder(self._first, positions, self.spec.stride if self.spec.order == "strided" else 1)

    def _positions(self) -> orders.Positions:
        spec, end = self.spec, self._most if self.spec.tail == "keep" and self.spec.order != "random_blocks" else None
        ranks, rank = (spec.world_size, spec.rank) if spec.partition == "batches" else (1, 0)
        return orders.Positions(self.batch_size, self._count, ranks=ranks, rank=rank, end=end)


def _borders(count: int, parts: int, numbers: Indices) -> Indices:
    """Selected borders of ``parts`` ranges over ``count`` items; the first ``count % parts`` ranges hold one more."""
    each, longer = divmod(count, parts)
    borders: Indices = numbers * each + np.minimum(numbers, longer)
    return borders
