"""The state that a checkpoint of the job holds: names, types, shards and bytes of the tensors of each rank."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dlio_torch.checkpoint.job.parameters import parameter_count
from dlio_torch.checkpoint.job.ranks import (
    RankPlace,
    Shard,
    chunk,
    data_index,
    data_ranks,
    model_shards,
    place,
    rank_shards,
    replica_number,
)
from dlio_torch.config.schema_model import DataType, ModelConfig, ParallelConfig

ELEMENT_BYTES: dict[str, int] = {
    **{"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8},
    **{"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8},
}
"""Size of an element of each type."""

MASTER = "master_param"
"""Name of the float32 copy of a weight in the optimizer's state, as in FusedAdam of Transformer Engine."""


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the state that a rank saves.

    Attributes:
        name: the parameter's name for weights, ``optimizer.state.<parameter>.<state>`` for the optimizer; with ZeRO
            ``optimizer.<group>.<state>``, the part of a group of parameters in one row.
        dtype: type of its elements.
        global_shape: numbers of elements of the whole tensor; with ZeRO, of this tensor-parallel rank and stage.
        local_shape: numbers of elements that the rank holds.
        offsets: first index of them in each dimension.
        replica: 0 for one of the ranks that hold this block, 1, 2 and so on for the others.
    """

    name: str
    dtype: str
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    replica: int

    @property
    def bytes(self) -> int:
        """Size of the elements that the rank holds."""
        return math.prod(self.local_shape) * ELEMENT_BYTES[self.dtype]


def rank_state(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[StateTensor]:
    """All tensors that a rank holds: weights first, then the optimizer's state.

    Args:
        model: the model.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    return [*rank_weights(model, parallel, rank), *rank_optimizer(model, parallel, rank)]


def rank_weights(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[StateTensor]:
    """The weights that a rank holds; with ZeRO 3 the part of each parameter, seen as one row.

    Args:
        model: the model.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    if parallel.zero == 3:
        here = place(parallel, rank)
        return [_flat_weight(model, parallel, here, shard) for shard in model_shards(model, parallel, rank)]
    return [_block(shard, shard.parameter.name, model.dtype) for shard in rank_shards(model, parallel, rank)]


def rank_optimizer(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[StateTensor]:
    """The optimizer's state that a rank holds: each parameter's, or with ZeRO that of groups of parameters.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    states = optimizer_states(model)
    if parallel.zero:
        groups = list(_zero_groups(model, parallel, rank))
        return [replace(g, name=f"optimizer.{g.name}.{name}", dtype=dtype) for g in groups for name, dtype in states]
    return [
        _block(shard, f"optimizer.state.{shard.parameter.name}.{name}", dtype)
        for shard in rank_shards(model, parallel, rank)
        for name, dtype in states
    ]


def optimizer_states(model: ModelConfig) -> list[tuple[str, DataType]]:
    """Name and type of each tensor that the optimizer saves for a parameter, in PyTorch's words."""
    adam = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"][: model.optimizer_states]
    names = ["momentum_buffer"] if model.optimizer_states == 1 else adam
    states: list[tuple[str, DataType]] = [(name, model.optimizer_dtype) for name in names]
    return [*states, (MASTER, "float32")] if model.master_weights else states


def bytes_per_parameter(model: ModelConfig) -> int:
    """Bytes of the state for each element of the parameters: 14 for bfloat16 weights, Adam and master weights."""
    optimizer = sum(ELEMENT_BYTES[dtype] for _, dtype in optimizer_states(model))
    return ELEMENT_BYTES[model.dtype] + optimizer


def job_bytes(model: ModelConfig) -> int:
    """Size of the state of the whole job, with each element once, whatever number of ranks hold it."""
    return parameter_count(model) * bytes_per_parameter(model)


def rank_bytes(model: ModelConfig, parallel: ParallelConfig, rank: int) -> int:
    """Size of the state that a rank holds."""
    return sum(tensor.bytes for tensor in rank_state(model, parallel, rank))


def largest_rank_bytes(model: ModelConfig, parallel: ParallelConfig) -> int:
    """Size of the state of the rank that holds most."""
    # No part is larger than the first one, so that the first rank of each stage holds the most of it.
    first_ranks = range(0, parallel.world_size, parallel.tensor * parallel.data)
    return max(rank_bytes(model, parallel, rank) for rank in first_ranks)


def fitting_layers(model: ModelConfig, parallel: ParallelConfig, limit: int) -> int:
    """Largest number of layers whose state takes at most ``limit`` bytes on each rank; each stage keeps one layer.

    Args:
        model: as published.
        parallel: ranks of the job.
        limit: bytes of the largest rank.
    """
    counts = range(parallel.pipeline, model.num_layers + 1)
    if not model.described or not counts:
        return model.num_layers

    def size(layers: int) -> int:
        return largest_rank_bytes(replace(model, num_layers=layers), parallel)

    return counts[max(0, bisect.bisect_right(counts, limit, key=size) - 1)]


def _block(shard: Shard, name: str, dtype: DataType) -> StateTensor:
    return StateTensor(name, dtype, shard.global_shape, shard.local_shape, shard.offsets, shard.replica)


def _flat_weight(model: ModelConfig, parallel: ParallelConfig, here: RankPlace, shard: Shard) -> StateTensor:
    parameter = shard.parameter
    part = chunk(shard.elements, data_ranks(parallel, parameter), data_index(parallel, here, parameter))
    replica = replica_number(parallel, here, parameter, 0, 1)
    return _row(parameter.name, model.dtype, shard.elements, part, replica)


_GROUPS: dict[str, Callable[[Shard], bool]] = {
    "divided": lambda shard: shard.parameter.split is not None and shard.parameter.expert is None,
    "replicated": lambda shard: shard.parameter.split is None,
    "experts": lambda shard: shard.parameter.expert is not None,
}
"""Groups of parameters of an optimizer with ZeRO: those that tensor-parallel ranks share or hold whole, and experts."""


def _zero_groups(model: ModelConfig, parallel: ParallelConfig, rank: int) -> Iterator[StateTensor]:
    """The part of each group that a rank holds; the parameters of a group lie in one row.

    DeepSpeed rounds the parts up to equal sizes; here the last ones are shorter, so that all parts together have the
    size of the group.
    """
    here, shards = place(parallel, rank), model_shards(model, parallel, rank)
    for name, belongs in _GROUPS.items():
        group = [shard for shard in shards if belongs(shard)]
        if group:
            first, total = group[0].parameter, sum(shard.elements for shard in group)
            part = chunk(total, data_ranks(parallel, first), data_index(parallel, here, first))
            yield _row(name, "float32", total, part, here.tensor if first.split is None else 0)


def _row(name: str, dtype: DataType, total: int, part: tuple[int, int], replica: int) -> StateTensor:
    first, count = part
    return StateTensor(name, dtype, (total,), (count,), (first,), replica)
