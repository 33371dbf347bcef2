"""Plan of a pipe: the samples that a rank gets in each step, computed without reading data.

What :class:`~dlio_torch.data.order.sampler.BatchSampler` is to batches of sample numbers, a plan is to pipes
that read files from start to end.  The batches of a rank come from its loader workers in turn, as torch's
DataLoader takes them: a worker that has no more is passed over.  A plan calls the workers of an epoch
*parts*, because after a restart part ``p`` need not be worker ``p``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np

from dlio_torch.data.order.orders import Indices
from dlio_torch.errors import ConfigError

ENDLESS = 1 << 62  # batches


class Plan(Protocol):
    """Protocol of the order of a rank's samples, computed without reading data.

    Attributes:
        batch_size: samples of a full batch of this rank.
        num_samples: samples of the data set.
    """

    batch_size: int
    num_samples: int

    def __len__(self) -> int:
        """Number of steps in an epoch."""

    @property
    def share(self) -> range:
        """The range of sample numbers that the rank draws from."""

    @property
    def epoch_samples(self) -> int:
        """Number of samples that the rank fetches in an epoch, repeated ones included."""

    def batch(self, epoch: int, step: int) -> Indices:
        """Sample numbers of the batch in ``step`` (from 0) of ``epoch``; int64 of ``(samples of the batch,)``."""

    def expected(self, epoch: int, first: int = 0) -> Indices:
        """Numbers of the samples that the rank gets in ``epoch`` from step ``first`` on, ascending, repeated."""


def round_robin(batches: Sequence[int]) -> Iterator[int]:
    """Part of the plan from which each batch of a rank comes.

    Args:
        batches: batches that each part gives.
    """
    left = list(batches)
    while any(left):
        for part, count in enumerate(left):
            if count:
                left[part] -= 1
                yield part


class PipePlan(ABC):
    """Base of plans of one rank's batches, epoch by epoch.

    Attributes:
        num_samples: samples of the data set.
        batch_size: samples of a full batch of this rank.
        endless: an epoch goes on where the one before ended; else each starts from the beginning.
        parts: shares into which the rank's files are cut, one for each loader worker.
        held_samples: most samples that the pipes of all parts keep in memory, beside batches under way.
    """

    held_samples: int

    def __init__(
        self, *, num_samples: int, batch_size: int, steps: int, endless: bool, parts: int, pattern: str
    ) -> None:
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.endless = endless
        self.parts = parts
        self._steps = steps
        self._pattern = f"{pattern}, {num_samples} samples, batch {batch_size}, {parts} parts, {steps} steps"

    @abstractmethod
    def part_batches(self, epoch: int, part: int) -> Iterator[list[int]]:
        """Yields the sample numbers of the batches of ``part`` in ``epoch``, or in all epochs if ``endless``."""

    @abstractmethod
    def part_lengths(self, epoch: int) -> list[int]:
        """Number of batches of each part in ``epoch``; :data:`ENDLESS` for an endless plan."""

    def __len__(self) -> int:
        """Number of steps in an epoch, which is the same on every rank."""
        return self._steps

    @property
    def share(self) -> range:
        """The range that contains the sample numbers of this rank."""
        return range(self.num_samples)

    @property
    def epoch_samples(self) -> int:
        """See :class:`Plan`."""
        return self._steps * self.batch_size

    def batches(self, epoch: int, step: int = 0) -> Iterator[list[int]]:
        """Yields the sample numbers of the batches of ``epoch`` from ``step`` on, in the order of steps."""
        return islice(self.onward(epoch, step), max(0, self._steps - step))

    def onward(self, epoch: int, step: int = 0) -> Iterator[list[int]]:
        """Same as :meth:`batches`; if ``endless``, the following epochs continue."""
        parts = [self.part_batches(epoch, part) for part in range(self.parts)]
        everything = (next(parts[part]) for part in round_robin(self.part_lengths(epoch)))
        return islice(everything, self.begin(epoch) + step, None if self.endless else self._steps)

    def begin(self, epoch: int) -> int:
        """Number of batches of each part before the first batch of ``epoch``."""
        return epoch * self._steps if self.endless else 0

    def batch(self, epoch: int, step: int) -> Indices:
        """Sample numbers of the batch in ``step`` (from 0) of ``epoch``; int64 of ``(samples of the batch,)``."""
        return np.asarray(next(self.batches(epoch, step)), np.int64)

    def expected(self, epoch: int, first: int = 0) -> Indices:
        """Numbers of the samples that this rank gets in ``epoch`` from step ``first`` on, ascending, repeated."""
        return np.sort(np.fromiter((sample for batch in self.batches(epoch, first) for sample in batch), np.int64))

    def positions(self, epoch: int, step: int) -> list[tuple[int, int]]:
        """Part of each loader worker, and the number of the part's batches before ``step``."""
        order = round_robin(self.part_lengths(epoch))
        given = [0] * self.parts
        for part in islice(order, step + (epoch * self._steps if self.endless else 0)):
            given[part] += 1
        live = sum(had < length for had, length in zip(given, self.part_lengths(epoch), strict=True))
        coming = list(islice(order, live))  # each part that has more, once
        over = [part for part in range(self.parts) if part not in coming]
        return [(part, given[part]) for part in coming + over]

    def left(self, epoch: int, step: int) -> list[int]:
        """Number of batches of each loader worker from ``step`` on; :data:`ENDLESS` for all epochs."""
        lengths = self.part_lengths(epoch)
        if not self.endless:
            lengths = np.bincount(list(islice(round_robin(lengths), step, self._steps)), minlength=self.parts).tolist()
        return [lengths[part] for part, _ in self.positions(epoch, step)]

    def state_dict(self) -> dict[str, Any]:
        """The initial position and its access pattern, as JSON-compatible values."""
        return {"epoch": 0, "step": 0, "pattern": self._pattern}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raise if a saved position has another access pattern; the loader itself keeps the position.

        Raises:
            ConfigError: the state belongs to another data set, order or number of ranks or workers.
        """
        if state_dict["pattern"] != self._pattern:
            raise ConfigError(
                f"the saved position belongs to the access pattern ({state_dict['pattern']}), but this run has "
                f"({self._pattern})",
                hint="resume with the configuration and the number of ranks and workers that saved it",
            )
