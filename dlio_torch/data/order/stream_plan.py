"""Plan of a stream of whole files: shuffled, sharded over ranks, interleaved and drawn from a shuffle pool.

A *pass* reads each file of a share once.  Without ``repeat`` an epoch is one pass from the beginning; with it
passes follow each other through the epochs, as TensorFlow's ``repeat`` gives one endless data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.order.access_patterns import drawn, generator, in_batches, interleaved
from dlio_torch.data.order.file_blocks import FileBlocks
from dlio_torch.data.order.kept_tails import KeptTails
from dlio_torch.data.order.orders import permuted
from dlio_torch.data.order.pipe_plan import ENDLESS, PipePlan
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.errors import ConfigError
from dlio_torch.units import counted

Numbers = npt.NDArray[np.int64]
T = TypeVar("T")


class StreamPlan(PipePlan):
    """Order of the files and samples that a rank reads from a stream.

    ================== ==================================================================================
    partition, shard   files of rank r in a pass
    ================== ==================================================================================
    files, before      every ``world_size``-th file from r on (``tf.data``'s shard), then shuffled
    files, after       r-th of ``world_size`` runs of a shuffle that all ranks share; the rest is left out
    none               all files, in a shuffle of its own
    ================== ==================================================================================

    With ``block`` the blocks of all files take the place of files, in this table and in everything that follows: a
    block is dealt, shuffled and read like a file of its own.

    Part p of the rank, one loader worker, takes every ``parts``-th of these files from p on.  Every rank
    has the same number of steps: as many full batches as the smallest share is sure to hold
    (``tail=drop``), or as the largest may need (``tail=pad``; a part that is over goes on at its own start).
    With ``tail=keep`` each part ends with a smaller batch, as an ``IterableDataset`` does in each worker of a
    ``DataLoader`` with ``drop_last=False``; there are as many steps as the largest share may need, and parts of ranks
    that need fewer begin again.  With ``repeat`` there may be any number of steps.

    Args:
        file_counts: samples of each file; with ``block``, cut into blocks here.
        spec: order, shards and batches.

    Attributes:
        interleave, interleave_buffer: as in the specification.
        interleave_prefetch: likewise; 0 without threads for it.
        pool: samples in the shuffle pool of a part, at least 1.

    Raises:
        ConfigError: no such batches exist; names the key, its value and what the data give.
    """

    def __init__(self, file_counts: Sequence[int], spec: StreamSpec) -> None:
        self.interleave, self.interleave_buffer = spec.interleave, spec.interleave_buffer
        self.interleave_prefetch = spec.interleave_prefetch if spec.interleave_buffer else 0
        self._blocks = FileBlocks(FileCounts.of(file_counts), spec.block) if spec.block else None
        self._counts = FileCounts.of(file_counts) if self._blocks is None else self._blocks.counts
        self.held_samples = self._held_samples(spec)
        self.pool = max(1, spec.pool)
        self._shuffled = spec.order == "shuffled"
        self._by_files = spec.partition == "files"
        self._redealt = self._by_files and spec.shard == "after_shuffle"
        self._permuted = (spec.whole or bool(spec.block)) and self._shuffled
        self._pad = spec.tail == "pad" and not spec.repeat
        self._keep = spec.tail == "keep" and not spec.repeat
        self._seed, self._rank, self._world_size = spec.seed, spec.rank, spec.world_size
        size = spec.rank_batch_size()
        if self._by_files and len(self._counts) < spec.world_size:
            piece = "block" if spec.block else "file"
            raise ConfigError(
                f"access.partition=files leaves ranks without data: there are {counted(len(self._counts), piece)} for "
                f"{spec.world_size} ranks",
                hint=f"use at most {len(self._counts)} ranks, or raise dataset.num_files",
            )
        given = self._steps_given(spec, size)
        super().__init__(
            num_samples=self._counts.total,
            batch_size=size,
            steps=spec.steps or given,
            endless=spec.repeat,
            parts=spec.parts,
            pattern=f"stream, {spec.order}, {spec.partition}, {spec.shard}, whole {spec.whole}, "
            f"block {spec.block}, "
            f"interleave {spec.interleave}, pool {spec.pool}, repeat {spec.repeat}, {spec.tail}, seed {spec.seed}, "
            f"world size {spec.world_size}",
        )

    def _held_samples(self, spec: StreamSpec) -> int:
        begun = spec.interleave + self.interleave_prefetch
        ready = begun * (spec.interleave_buffer + 1) if spec.interleave_buffer else 0
        held = spec.parts * (begun * self._counts.largest() if spec.whole or spec.block else spec.pool + ready)
        return held if spec.repeat else min(held, self._counts.total)

    def _steps_given(self, spec: StreamSpec, size: int) -> int:
        """Number of steps in one pass; raises if there are too few or none."""
        given = self._steps_of_a_pass(size, spec.parts)
        if not spec.repeat and spec.steps > given:
            raise ConfigError(
                f"{spec.steps_key}={spec.steps}, but the data suffice only for {counted(given, 'step')} in an epoch",
                hint=f"set {spec.steps_key}=0 to use all samples, set access.repeat=true, or use more samples",
            )
        if not (spec.steps or given):
            raise ConfigError(
                f"{spec.batch_key}={spec.batch_size} is larger than the number of samples in the files of one rank "
                "or loader worker",
                hint=f"use a smaller {spec.batch_key}, more files or samples, access.tail=keep, or access.repeat=true "
                f"with {spec.steps_key}",
            )
        return given

    # --- files ------------------------------------------------------------------------------------

    def files(self, number: int, part: int) -> list[int]:
        """Files of ``part`` in pass ``number``, in the order of reading."""
        mine: list[int] = self._rank_files(number)[part :: self.parts].tolist()
        return mine

    def rows(self, number: int, file: int) -> range | Numbers:
        """Samples of ``file``, from 0, in the order in which pass ``number`` delivers them."""
        samples = self._counts[file]
        if not self._permuted:
            return range(samples)
        return np.random.default_rng([self._seed, number, 2, file]).permutation(samples)

    def place(self, file: int) -> tuple[int, int]:
        """The file on the storage of ``file``, which may be a block, and its first sample there."""
        return (file, 0) if self._blocks is None else self._blocks.place(file)

    def first(self, file: int) -> int:
        """Sample number of the first sample of ``file``."""
        return self._counts.before(file)

    def _rank_files(self, number: int) -> Numbers:
        files, ranks = len(self._counts), self._world_size
        if self._redealt:
            each = files // ranks
            key = [self._seed, number, 0]
            return permuted(key, files, slice(self._rank * each, (self._rank + 1) * each)).astype(np.int64)
        dealt = np.arange(self._rank, files, ranks) if self._by_files else np.arange(files)
        return (
            np.random.default_rng([self._seed, number, 1, self._rank]).permutation(dealt) if self._shuffled else dealt
        )

    # --- steps ------------------------------------------------------------------------------------

    def _steps_of_a_pass(self, batch_size: int, parts: int) -> int:
        """Number of steps that one pass guarantees on every rank for any shuffle."""
        steps = [held for counts, files in self._shares() for held in self._held(counts, files, batch_size, parts)]
        return min(steps) if self._drops else max(steps)

    @property
    def _drops(self) -> bool:
        return not (self._pad or self._keep)

    def _shares(self) -> Iterator[tuple[Numbers, int]]:
        """Shares of files in a pass: number of samples of each file by share, and number of files of each share.

        Shares that are alike are given once.
        """
        files, ranks = len(self._counts), self._world_size
        if not self._by_files or self._redealt:
            share_size = files if not self._by_files else files // ranks
            any_of = share_size if self._counts.alike else files  # any files may be in such a share
            yield self._counts.array(np.arange(any_of))[:, None], share_size
            return
        each, longer = divmod(files, ranks)
        for having, held in ((range(longer), each + 1), (range(longer, ranks), each)):
            some = having[:1] if self._counts.alike else having
            if some:
                yield self._counts.array(np.arange(held)[:, None] * ranks + np.asarray(some)), held

    def _held(self, counts: Numbers, files: int, batch_size: int, parts: int) -> list[int]:
        """Number of steps of each share that holds ``files`` of the files in its column of ``counts``."""
        if self._shuffled:
            # Any file may be in any part: reckon with the smallest ones, or with the largest.
            counts = np.sort(counts, axis=0)
            counts = counts if self._drops else counts[::-1]
            of_parts = [counts[: len(range(part, files, parts))] for part in range(parts)]
        else:
            of_parts = [counts[:files][part::parts] for part in range(parts)]
        held = np.array([of_part.sum(axis=0) for of_part in of_parts])
        if self._pad:
            steps = (held > 0).sum(axis=0) * -(-held.max(axis=0) // batch_size)
        elif self._keep:
            # The largest files cannot be in all parts: each of the parts has at most one smaller batch.
            whole = (counts[:files].sum(axis=0) + parts * (batch_size - 1)) // batch_size
            steps = np.minimum((-(-held // batch_size)).sum(axis=0), whole)
        else:
            steps = (held // batch_size).sum(axis=0)
        numbers: list[int] = steps.tolist()
        return numbers

    def part_lengths(self, epoch: int) -> list[int]:
        """See :class:`PipePlan`."""
        if self._keep:
            return self._tails(epoch).lengths
        endless = self.endless or self._pad
        return [ENDLESS if endless and samples else samples // self.batch_size for samples in self._samples_of(epoch)]

    @property
    def epoch_samples(self) -> int:
        """See :class:`PipePlan`; with ``tail=keep``, of the first epoch."""
        return self._tails(0).epoch_samples() if self._keep else super().epoch_samples

    def _samples_of(self, epoch: int) -> list[int]:
        """Number of samples in the files of each part in ``epoch``."""
        mine = self._rank_files(epoch)
        return [int(self._counts.array(mine[part :: self.parts]).sum()) for part in range(self.parts)]

    def _tails(self, epoch: int) -> KeptTails:
        return KeptTails(self._samples_of(epoch), self.batch_size, self._steps)

    # --- samples ----------------------------------------------------------------------------------

    def key(self, epoch: int, part: int) -> tuple[int, ...]:
        """Random key of the draws from the pool of ``part``; with ``repeat``, the pool persists over epochs."""
        return (self._seed, 0 if self.endless else epoch, self._rank, part)

    def passes(self, epoch: int) -> Iterable[int]:
        """Numbers of the passes of ``epoch``; with ``repeat``, those of all epochs."""
        return count() if self.endless else (epoch,)

    def part_batches(self, epoch: int, part: int) -> Iterator[list[int]]:
        """See :class:`PipePlan`."""
        return self.cut(lambda: self._part_samples(epoch, part), epoch, part)

    def cut(self, start: Callable[[], Iterable[T]], epoch: int, part: int) -> Iterator[list[T]]:
        """Yields the batches of ``part`` in ``epoch``.

        Args:
            start: begins the samples of the part, or their numbers; called again if the part continues at its start
                when it has ended.
            epoch: the epoch.
            part: loader worker.
        """
        if not self._keep:
            return in_batches(start, self.batch_size, again=self._pad)
        tails = self._tails(epoch)
        again = tails.lengths[part] > tails.single[part]
        batches = in_batches(start, self.batch_size, again=again, keep=True)
        # A part that is read once comes to its end by itself, with whatever its last file does there.
        return islice(batches, tails.lengths[part]) if again else batches

    @property
    def keeps(self) -> bool:
        """Whether samples must be kept in memory, because they are delivered in another order than read."""
        return self.pool > 1 or self._permuted

    def part_entries(self, epoch: int, part: int, first: int = 0) -> Iterator[tuple[list[int], list[int]]]:
        """Same as :meth:`part_batches` from batch ``first`` on, with the samples that are read for each batch.

        They are in the order in which files are read.  Beside the first batch stands everything that is in memory
        then.
        """
        came: list[int] = []
        held: Counter[int] = Counter()
        for number, batch in enumerate(self.cut(lambda: self._part_samples(epoch, part, came), epoch, part)):
            entered = came.copy()
            came.clear()
            if number < first:
                held.update(entered)
                held.subtract(batch)
            elif number == first:
                yield batch, [*sorted(held.elements()), *entered]
            else:
                yield batch, entered

    def _part_samples(self, epoch: int, part: int, came: list[int] | None = None) -> Iterator[int]:
        """Yields the samples of ``part`` and adds those that are read into memory to ``came``."""
        whole, single = (came, None) if self._permuted else (None, came)
        passes = (
            _noted(interleaved(self._numbers(number, part, whole), self.interleave), single)
            for number in self.passes(epoch)
        )
        return drawn(passes, self.pool, generator(*self.key(epoch, part)))

    def _numbers(self, number: int, part: int, came: list[int] | None = None) -> Iterator[Iterator[int]]:
        for file in self.files(number, part):
            first, rows = self.first(file), self.rows(number, file)
            if came is not None:
                came.extend(range(first, first + len(rows)))
            yield _numbered(first, rows)


def _numbered(first: int, rows: Iterable[int]) -> Iterator[int]:
    """Yields the sample numbers of a file's rows one by one, because a file may hold a billion."""
    return (first + int(row) for row in rows)


def _noted(samples: Iterator[int], came: list[int] | None) -> Iterator[int]:
    """Yields samples and adds each to ``came`` when it is requested."""
    if came is None:
        return samples
    return (came.append(sample) or sample for sample in samples)  # type: ignore[func-returns-value]
