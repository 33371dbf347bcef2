"""DataPipe of the decoupled engine: takes batches of sample numbers and yields batches of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import IterDataPipe, functional_datapipe

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.order.orders import BatchProducer, Indices
from dlio_torch.data.workers.placement import UNPLACED, Placement, ReadingThread


class ListedBatches:
    """Sampler over a given list of batches."""

    def __init__(self) -> None:
        self.batches: list[Indices] = []

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def batch_size(self) -> int:
        """Number of samples of the largest batch."""
        return max(map(len, self.batches), default=1)

    def batch_producer(self, epoch: int) -> BatchProducer:
        """Returns the batch producer of the only epoch."""
        return lambda step: self.batches[step]


@functional_datapipe("read_extents")
class ExtentReader(IterDataPipe[Fetched]):
    """DataPipe that reads batches by extents: ``BatchIndices(batches).read_extents(source, config)``.

    The batches of an iteration are taken from the pipe before, all at once; they are read by the threads of this
    process, one prefetch window ahead.

    Args:
        batches: lists of sample numbers.
        source: what is read.
        config: the options of ``loader``.
        placement: CPUs of the threads.
    """

    def __init__(
        self,
        batches: IterDataPipe[list[int]],
        source: DecoupledSource,
        config: LoaderConfig,
        placement: Placement = UNPLACED,
    ) -> None:
        super().__init__()
        self._placement = placement
        self._batches = batches
        self._listed = ListedBatches()
        self._config, self._source = config, source
        self._engine: DecoupledEngine | None = None

    def __iter__(self) -> Iterator[Fetched]:
        self._listed.batches = [np.array(batch, np.int64) for batch in self._batches]
        if self._engine is None:  # its memory is used again by the next iteration
            self._engine = DecoupledEngine(self._config, self._source, self._listed, placement=self._placement)
        yield from self._engine.start(0, 0)

    @property
    def threads(self) -> Sequence[ReadingThread]:
        """The reader threads of the current iteration."""
        return [] if self._engine is None else self._engine.threads

    def close(self) -> None:
        """End the threads; a second call does nothing."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
