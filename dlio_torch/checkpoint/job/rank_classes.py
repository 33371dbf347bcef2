"""Groups of ranks of the job that hold equal amounts, so that a thousand ranks need not be listed one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from dlio_torch.checkpoint.job.ranks import place
from dlio_torch.checkpoint.job.saved_state import rank_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


def rank_classes(model: ModelConfig, parallel: ParallelConfig, world_size: int) -> list[list[int]]:
    """Ranks 0 to ``world_size`` - 1 in groups; each rank of a group holds tensors of the same shapes and replicas.

    Ranks of several stages are in several groups, and the first rank, which often writes more, is alone.

    Args:
        model: the model.
        parallel: ranks of the job.
        world_size: number of ranks; at most those of the job.
    """
    classes: dict[tuple[object, ...], list[int]] = defaultdict(list)
    # All layers are alike, so that one layer of a stage tells its ranks apart.  With ZeRO the parts of a rank follow
    # from the sum over all layers.
    small = model if parallel.zero else replace(model, num_layers=parallel.pipeline)
    for rank in range(world_size):
        stage = place(parallel, rank).pipeline
        shapes = tuple((tensor.local_shape, tensor.replica == 0) for tensor in rank_state(small, parallel, rank))
        classes[rank == 0, stage, shapes].append(rank)
    return list(classes.values())
