"""Files that all ranks need in a step, computed on each rank from the sample order without communication."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.orders import BatchProducer
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import Tail


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
        self._samplers = samplers_of_all_ranks(sampler) if manifest.num_files > 1 else []
        self._producers: list[BatchProducer] = []
        self._ranks = 1 if sampler.spec.partition == "none" else sampler.spec.world_size  # that read different samples

    def begin(self, epoch: int) -> None:
        """Set the epoch of the next steps."""
        self._producers = [sampler.batch_producer(epoch) for sampler in self._samplers]

    def __call__(self, step: int, size: int) -> list[list[int]]:
        """Ascending file numbers for each call of this step, in which each rank's batch has ``size`` samples."""
        calls = 1 if self._by_step else size
        if not self._producers:
            return [[0]] * calls
        indices = np.concatenate([indices_of(step) for indices_of in self._producers])
        missing = size * self._ranks - len(indices)  # the start of the order completes the last batches
        indices = np.append(indices, np.resize(self._producers[0](0), missing)).reshape(-1, size)
        files = self._manifest.locate_all(indices.reshape(-1))[0].reshape(indices.shape)
        if self._by_step:
            return [np.unique(files).tolist()]
        return [np.unique(files[:, position]).tolist() for position in range(size)]


def samplers_of_all_ranks(sampler: BatchSampler) -> list[BatchSampler]:
    """Samplers of all ranks, in the order of ranks."""
    spec, steps = sampler.spec, len(sampler)
    if spec.partition == "none":
        return [sampler]  # all ranks read the same
    ranks = spec.world_size
    size = sampler.batch_size
    # The steps are known already, so that a rest that is dropped is none of theirs.
    tail: Tail = "pad" if spec.tail == "drop" else spec.tail
    spec = replace(spec, batch_scope="rank", batch_size=size, tail=tail, steps=steps)
    if spec.partition == "batches":
        whole = replace(spec, batch_size=size * ranks, rank=0, world_size=1)
        return [BatchSampler(whole, num_samples=sampler.num_samples)]
    each = (replace(spec, rank=rank) for rank in range(ranks))
    return [BatchSampler(rank_spec, num_samples=sampler.num_samples) for rank_spec in each]
