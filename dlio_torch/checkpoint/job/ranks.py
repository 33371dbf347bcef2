"""Ranks of the job: the coordinates of each, and the part of each parameter that it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlio_torch.checkpoint.job.parameters import EMBEDDING, Parameter, parameters
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


@dataclass(frozen=True)
class RankPlace:
    """Coordinates of a rank; each is an index from 0.

    Attributes:
        rank: number of the rank in the job.
        tensor: among the ranks that share each matrix.
        pipeline: of its pipeline stage.
        data: among the ranks that train the same part of the model on other data.
        expert: among the ranks that share the experts.
    """

    rank: int
    tensor: int
    pipeline: int
    data: int
    expert: int


@dataclass(frozen=True)
class Shard:
    """The part of a parameter that a rank holds: a block of consecutive indices in each dimension.

    Attributes:
        parameter: the whole parameter.
        local_shape: numbers of elements of the block; 0 where the parameter has too few rows for all ranks.
        offsets: first index of the block in each dimension.
        replica: 0 for one of the ranks that hold this block, 1, 2 and so on for the others.
    """

    parameter: Parameter
    local_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    replica: int = 0

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Numbers of elements of the whole parameter."""
        return self.parameter.shape

    @property
    def elements(self) -> int:
        """Number of elements of the block."""
        return math.prod(self.local_shape)


def job_ranks(parallel: ParallelConfig) -> int:
    """Number of ranks of the job."""
    return parallel.world_size


def fsdp_ranks(parallel: ParallelConfig) -> int:
    """Number of data-parallel ranks over which FSDP shards one copy of the state; 1 without FSDP."""
    if parallel.fsdp == "none":
        return 1
    return parallel.data if parallel.fsdp == "full" else parallel.fsdp_ranks


def place(parallel: ParallelConfig, rank: int) -> RankPlace:
    """Coordinates of ``rank``: tensor parallelism varies fastest, then data, then pipeline.

    This is the order of Megatron-Core (``initialize_model_parallel``, order ``tp-cp-ep-dp-pp``), of DeepSpeed
    (``PipeModelDataParallelTopology``) and of torchtitan's device mesh.

    Raises:
        ValueError: the job has no such rank.
    """
    if not 0 <= rank < parallel.world_size:
        raise ValueError(f"rank {rank} is not one of the {parallel.world_size} ranks of the job")
    group, tensor = divmod(rank, parallel.tensor)
    pipeline, data = divmod(group, parallel.data)
    return RankPlace(rank, tensor, pipeline, data, data % parallel.expert)


def stage_layers(num_layers: int, stages: int, stage: int) -> range:
    """Layers of a pipeline stage.

    Where the number of layers does not divide, the first stages have one layer more, as in the checkpoints of MLPerf
    Storage (126 layers in 32 stages: 30 of 4 layers and 2 of 3).  Megatron-Core needs a multiple here, or the layers
    of the first and the last stage as options of their own.

    Args:
        num_layers: of the model.
        stages: number of stages.
        stage: index of the stage.
    """
    share, rest = divmod(num_layers, stages)
    first = stage * share + min(stage, rest)
    return range(first, first + share + (stage < rest))


def stage_parameters(model: ModelConfig, parallel: ParallelConfig, stage: int) -> list[Parameter]:
    """Parameters of a pipeline stage: the first one has the embeddings, the last one the final norm and the output.

    Tied embeddings are in both, because both compute with them.
    """
    layers, last = stage_layers(model.num_layers, parallel.pipeline, stage), parallel.pipeline - 1

    def in_stage(parameter: Parameter) -> bool:
        if parameter.layer is not None:
            return parameter.layer in layers
        if parameter.name == EMBEDDING:
            return stage == 0 or (model.tied_embeddings and stage == last)
        return stage == last

    return [parameter for parameter in parameters(model) if in_stage(parameter)]


def model_shards(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[Shard]:
    """The part of the model that tensor, pipeline and expert parallelism leave to a rank, before FSDP and ZeRO.

    Args:
        model: the model.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    here = place(parallel, rank)
    held = stage_parameters(model, parallel, here.pipeline)
    return [
        _model_shard(parallel, here, parameter) for parameter in held if _has_expert(model, parallel, here, parameter)
    ]


def rank_shards(model: ModelConfig, parallel: ParallelConfig, rank: int) -> list[Shard]:
    """The part of each parameter of its stage that a rank holds with FSDP, in the order of the model; without ZeRO.

    Args:
        model: the model.
        parallel: ranks of the job.
        rank: number of the rank.
    """
    here = place(parallel, rank)
    return [_fsdp_shard(parallel, here, shard) for shard in model_shards(model, parallel, rank)]


def replica_number(parallel: ParallelConfig, here: RankPlace, parameter: Parameter, copy: int, copies: int) -> int:
    """Number of a rank's block among the equal blocks of other ranks; 0 for exactly one of them.

    Args:
        parallel: ranks of the job.
        here: the rank.
        parameter: whose block it is.
        copy: index of the copy that the rank holds, among those for different data.
        copies: number of copies for different data.
    """
    # Tied embeddings: the copies of the last stage come after all those of the first one.
    if parameter.name == EMBEDDING and here.pipeline > 0:
        copy += copies
    return copy if parameter.split is not None else copy * parallel.tensor + here.tensor


def data_ranks(parallel: ParallelConfig, parameter: Parameter) -> int:
    """Number of ranks that train the same elements of ``parameter`` on different data."""
    return parallel.data if parameter.expert is None else parallel.data // parallel.expert


def data_index(parallel: ParallelConfig, here: RankPlace, parameter: Parameter) -> int:
    """Index of a rank among :func:`data_ranks`."""
    return here.data if parameter.expert is None else here.data // parallel.expert


def chunk(size: int, parts: int, index: int) -> tuple[int, int]:
    """First index and number of elements of a part, as ``torch.chunk`` and DTensor's ``Shard`` cut a dimension.

    All parts have the size of the first one, but the last ones may be shorter or empty.

    Args:
        size: of the dimension.
        parts: number of parts.
        index: of the part.
    """
    step = -(-size // parts)
    first = min(index * step, size)
    return first, min(step, size - first)


def _has_expert(model: ModelConfig, parallel: ParallelConfig, here: RankPlace, parameter: Parameter) -> bool:
    """Whether a parameter belongs to no expert, or to one of those of the rank: consecutive ones."""
    if parameter.expert is None:
        return True
    first, count = chunk(model.num_experts, parallel.expert, here.expert)
    return first <= parameter.expert < first + count


def _model_shard(parallel: ParallelConfig, here: RankPlace, parameter: Parameter) -> Shard:
    index, count = data_index(parallel, here, parameter), data_ranks(parallel, parameter)
    replica = replica_number(parallel, here, parameter, index, count)
    whole = Shard(parameter, parameter.shape, tuple(0 for _ in parameter.shape), replica)
    return whole if parameter.split is None else _cut(whole, parameter.split, parallel.tensor, here.tensor)


def _fsdp_shard(parallel: ParallelConfig, here: RankPlace, shard: Shard) -> Shard:
    """The rows of a rank: FSDP2 cuts dimension 0 of what tensor parallelism has left."""
    parameter = shard.parameter
    index, count = data_index(parallel, here, parameter), data_ranks(parallel, parameter)
    # Experts are sharded over the ranks that hold the same ones.
    ranks = max(1, fsdp_ranks(parallel) // (parallel.data // count))
    replica = replica_number(parallel, here, parameter, index // ranks, count // ranks)
    return replace(_cut(shard, 0, ranks, index % ranks), replica=replica)


def _cut(shard: Shard, dimension: int, parts: int, index: int) -> Shard:
    first, count = chunk(shard.local_shape[dimension], parts, index)
    shape, offsets = list(shard.local_shape), list(shard.offsets)
    shape[dimension] = count
    offsets[dimension] += first
    return replace(shard, local_shape=tuple(shape), offsets=tuple(offsets))
