"""Device meshes of the described job, without its processes: how the ranks share each parameter, as DTensor has it."""

from __future__ import annotations

import functools

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from dlio_torch.checkpoint.job.parameters import Parameter
from dlio_torch.checkpoint.job.ranks import fsdp_ranks, place
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.environment.private_names import mesh_of_rank

Sharding = tuple[DeviceMesh, tuple[Placement, ...]]
"""Mesh of the ranks that hold a parameter, and what each dimension of the mesh does with it."""


def sharding(parallel: ParallelConfig, rank: int, parameter: Parameter, device: str = "cpu") -> Sharding | None:
    """Mesh and placements of a parameter on one rank of the job; ``None`` for a plain tensor.

    The dimensions are ``replicate`` (with hybrid sharding), ``tensor`` and ``shard``, of which only those exist that
    the job uses.  FSDP cuts what tensor parallelism has left, so that ``tensor`` comes first; FSDP2's own mesh has it
    last and a placement that says so, with the same blocks on the same ranks.

    Args:
        parallel: ranks of the job.
        rank: number of the rank.
        parameter: a parameter of its pipeline stage.
        device: type of the devices.
    """
    mesh = _mesh(parallel, rank, parameter.expert is not None, device)
    if mesh is None:
        return None
    split = Replicate() if parameter.split is None else Shard(parameter.split)
    placements: dict[str, Placement] = {"replicate": Replicate(), "tensor": split, "shard": Shard(0)}
    return mesh, tuple(placements[name] for name in mesh.mesh_dim_names or ())


@functools.lru_cache(maxsize=8)
def _mesh(parallel: ParallelConfig, rank: int, of_expert: bool, device: str) -> DeviceMesh | None:
    here = place(parallel, rank)
    ranks = torch.arange(parallel.world_size).view(parallel.pipeline, parallel.data, parallel.tensor)[here.pipeline]
    if of_expert:
        ranks = ranks[here.expert :: parallel.expert]
    if parallel.fsdp == "none":
        row = here.data // parallel.expert if of_expert else here.data
        return None if parallel.tensor == 1 else mesh_of_rank(ranks[row], ("tensor",), rank, device)
    # Experts are sharded over the ranks that hold the same ones.
    shards = fsdp_ranks(parallel) // (parallel.expert if of_expert else 1)
    blocks = ranks.view(-1, shards, parallel.tensor).transpose(1, 2)
    names = ("replicate", "tensor", "shard")
    used = (parallel.fsdp == "hybrid", parallel.tensor > 1, True)
    kept = [i for i in range(3) if used[i]]
    # Other dimensions have one element.
    shape = [blocks.shape[i] for i in kept]
    return mesh_of_rank(blocks.reshape(shape), tuple(names[i] for i in kept), rank, device)
