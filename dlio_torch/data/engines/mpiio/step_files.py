"""Files that all ranks need in a step, computed on each rank from the sample order without communication."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.orders import BatchProducer
from dlio_torch.data.order.sampler import BatchSampler


class NeededFiles:
    """Files that any rank reads in each call of a step.

    Where the files of ranks differ this holds the order of all samples, four bytes each, as the ranks' own
    samplers together do.

    Args:
        sampler: of this rank.
        manifest: where samples lie.
        by_step: one call for all samples of a step; else one for each sample of a rank's batch.
    """

    def __init__(self, sampler: BatchSampler, manifest: Manifest, *, by_step: bool) -> None:
        self._manifest = manifest
        self._by_step = by_step
        self._size = sampler.batch_size
        self._samplers = samplers_of_all_ranks(sampler) if manifest.num_files > 1 else []
        self._producers: list[BatchProducer] = []

    def begin(self, epoch: int) -> None:
        """Set the epoch of the next steps."""
        self._producers = [sampler.batch_producer(epoch) for sampler in self._samplers]

    def __call__(self, step: int) -> list[list[int]]:
        """Ascending file numbers for each call of this step."""
        calls = 1 if self._by_step else self._size
        if not self._producers:
            return [[0]] * calls
        indices = np.concatenate([indices_of(step) for indices_of in self._producers]).reshape(-1, self._size)
        files = self._manifest.locate_all(indices.reshape(-1))[0].reshape(indices.shape)
        if self._by_step:
            return [np.unique(files).tolist()]
        return [np.unique(files[:, position]).tolist() for position in range(self._size)]


def samplers_of_all_ranks(sampler: BatchSampler) -> list[BatchSampler]:
    """Samplers of all ranks, in the order of ranks."""
    spec, steps = sampler.spec, len(sampler)
    if spec.partition == "none":
        return [sampler]  # all ranks read the same
    ranks = spec.world_size
    size = sampler.batch_size
    # The steps are known already, whatever becomes of the rest.
    spec = replace(spec, batch_scope="rank", batch_size=size, tail="pad", steps=steps)
    if spec.partition == "batches":
        whole = replace(spec, batch_size=size * ranks, rank=0, world_size=1)
        return [BatchSampler(whole, num_samples=sampler.num_samples)]
    each = (replace(spec, rank=rank) for rank in range(ranks))
    return [BatchSampler(rank_spec, num_samples=sampler.num_samples) for rank_spec in each]
