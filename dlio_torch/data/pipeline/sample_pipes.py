"""DataPipes of sample numbers and of the batches read for them.

torch's DataLoader tells DataPipes their rank from ``torch.distributed`` only, so under Horovod every
rank would read everything; and it overwrites a sharding that was applied by hand.  Here the rank is
in the sampler, and the workers of a rank take every n-th of its batches, so a pipe gives the same
samples in the same order as the map-style path, under every launcher and number of workers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice

from torch.utils.data import IterableDataset, IterDataPipe, functional_datapipe, get_worker_info

from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.map_dataset import CatchingDataset
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.workers.transfer_errors import shared_numbers


class EpochBatches:
    """Batch sampler of one rank's batches of sample numbers, epoch by epoch, for a DataLoader.

    In a loader worker an iterator gives the worker's share of them.

    Args:
        sampler: gives the rank's batches.
        share: number of this share.
        shares: shares into which the rank's batches are cut, beside those of its workers.
    """

    def __init__(self, sampler: BatchSampler, share: int = 0, shares: int = 1) -> None:
        self._sampler = sampler
        self._share = share
        self._shares = shares
        # Shared memory: workers that persist learn of a new epoch, and of a position to resume at.
        self._position = shared_numbers(2)

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the position of the next iteration: ``epoch``, from batch ``step`` on."""
        self._position[0], self._position[1] = epoch, step

    def __iter__(self) -> Iterator[list[int]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        epoch, step = (int(value) for value in self._position)
        sampler = copy.copy(self._sampler)
        sampler.set_epoch(epoch)
        first = step + self._share * workers + number
        return islice(iter(sampler), first, None, self._shares * workers)


class BatchIndices(IterDataPipe[list[int]]):
    """DataPipe of one rank's batches of sample numbers."""

    def __init__(self, batches: EpochBatches) -> None:
        super().__init__()
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)


@functional_datapipe("read_samples")
class SampleReader(IterDataPipe[Fetched]):
    """DataPipe that reads each batch of sample numbers: ``BatchIndices(batches).read_samples(dataset)``."""

    def __init__(self, source: IterDataPipe[list[int]], dataset: CatchingDataset) -> None:
        super().__init__()
        self._source = source
        self._dataset = dataset

    def __iter__(self) -> Iterator[Fetched]:
        for indices in self._source:
            yield self._dataset.__getitems__(indices)


class PlainIterable(IterableDataset[Fetched]):
    """Wrapper that hides from a DataLoader that its dataset is a DataPipe.

    For each epoch of a DataPipe the DataLoader makes a process group and broadcasts a seed where
    ``torch.distributed`` is in use, which hangs where one rank alone evaluates.  Nothing here draws from
    that seed.
    """

    def __init__(self, pipe: IterDataPipe[Fetched]) -> None:
        self._pipe = pipe

    def __iter__(self) -> Iterator[Fetched]:
        return iter(self._pipe)
