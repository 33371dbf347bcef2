"""Files that all ranks need in a step of MPI-IO reads, as each rank computes them by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.mpiio.step_files import NeededFiles
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError


@settings(deadline=None)
@given(
    st.sampled_from(["batches", "slices", "none"]),
    st.sampled_from(["sequential", "shuffled", "strided", "random_blocks"]),
    st.sampled_from(["drop", "pad", "keep"]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(5, 40),
    st.booleans(),
)
def test_every_rank_knows_the_files_of_all_ranks(
    partition: str, order: str, tail: str, world: int, batch: int, samples: int, by_step: bool
) -> None:
    names = [f"{number}.none" for number in range(samples)]
    manifest = Manifest("train", 0, FileCounts([1] * samples), Path("nowhere"), names, ".none")
    options = {"partition": partition, "order": order, "tail": tail, "batch_size": batch, "world_size": world}
    try:
        samplers = [BatchSampler(SamplerSpec(**options, rank=rank), num_samples=samples) for rank in range(world)]
    except ConfigError as error:
        assume("larger than" not in str(error))
        raise
    needed = [NeededFiles(sampler, manifest, by_step=by_step) for sampler in samplers]
    for files in needed:
        files.begin(1)
    for step in range(len(samplers[0])):
        batches = np.array([sampler.batch(1, step) for sampler in samplers])
        calls = [batches] if by_step else [batches[:, position] for position in range(batches.shape[1])]
        expected = [np.unique(call).tolist() for call in calls]
        assert all(files(step, batches.shape[1]) == expected for files in needed)
