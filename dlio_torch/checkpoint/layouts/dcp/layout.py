"""Layout ``dcp``: ``step-<n>/__<rank>_<i>.distcp`` of each rank and a description of all, ``.metadata``."""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.checkpoint.base import Layout, SaverSetup
from dlio_torch.checkpoint.job.parameters import EMBEDDING
from dlio_torch.checkpoint.job.ranks import Shard, data_ranks, fsdp_ranks, rank_shards
from dlio_torch.checkpoint.job.saved_state import bytes_per_parameter, rank_bytes, rank_state
from dlio_torch.checkpoint.layouts.dcp.rank_files import folder_of, ownership_entries
from dlio_torch.checkpoint.layouts.dcp.written_tensors import written_tensors
from dlio_torch.checkpoint.listed_state import listed_bytes, listed_sizes
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

if TYPE_CHECKING:
    from dlio_torch.checkpoint.base import Saver


class DcpLayout(Layout):
    """The state of the described model, or listed tensors, by ``torch.distributed.checkpoint``."""

    options = frozenset(
        {
            "async_save",
            "thread_count",
            "single_file_per_rank",
            "sync_files",
            "plan_cache",
            "use_collectives",
            "pinned_staging",
            "planned_ranks",
            "restore_ranks",
            "restore_part",
            "tensors",
        }
    )
    needs_model = True

    def saves_job(self, config: Config) -> bool:
        return not config.checkpoint.tensors

    def file_names(self, config: Config) -> list[str]:
        return ownership_entries()

    def saved_bytes(self, config: Config, rank: int) -> int:
        """Bytes of the tensors; what several ranks hold is saved once, whole, by the rank that the planner chooses.

        Of jobs too large to follow the planner, equal shares.
        """
        model, parallel = config.model, config.parallel
        if config.checkpoint.tensors:
            return _listed_bytes(config.checkpoint, rank)
        if not config.checkpoint.use_collectives or not _is_shared(model, parallel):
            return rank_bytes(model, parallel, rank)
        if (written := written_tensors(model, parallel)) is not None:
            return sum(written[rank])
        size = bytes_per_parameter(model)
        return sum(
            -(-shard.elements * size // _copies(parallel, shard, tied=model.tied_embeddings))
            for shard in rank_shards(model, parallel, rank)
        )

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        """Sizes of the tensors in each file, without headers; each thread is taken to write the same amount.

        With a file for each tensor in a job too large to follow the planner, a tensor that several ranks hold counts on
        the first of them.
        """
        options = config.checkpoint
        if not options.single_file_per_rank and options.tensors:
            return listed_sizes(options) if _listed_bytes(options, rank) else []
        if not options.single_file_per_rank:
            written = written_tensors(config.model, config.parallel) if options.use_collectives else None
            if written is not None:
                return list(written[rank])
            state = rank_state(config.model, config.parallel, rank)
            return [tensor.bytes for tensor in state if not tensor.replica or not options.use_collectives]
        size, files = self.saved_bytes(config, rank), options.thread_count
        return [size // files + (file < size % files) for file in range(files)]

    def rank_groups(self, config: Config, count: int) -> list[list[int]]:
        model, parallel = config.model, config.parallel
        shared = config.checkpoint.use_collectives and _is_shared(model, parallel)
        written = written_tensors(model, parallel) if shared else None
        if written is None:
            return super().rank_groups(config, count)
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank in range(count):
            groups[tuple(sorted(written[rank]))].append(rank)
        return list(groups.values())

    def plan_cost(self, config: Config) -> PlanCost | None:
        if not config.checkpoint.use_collectives or config.checkpoint.tensors:
            return None
        from dlio_torch.checkpoint.layouts.dcp.simulated_ranks import SimulatedRanks

        options = config.checkpoint
        ranks = min(options.planned_ranks, config.parallel.world_size)
        writer = {"thread_count": options.thread_count, "single_file_per_rank": options.single_file_per_rank}
        return SimulatedRanks(config.model, config.parallel, ranks).cost(folder_of(Path("checkpoints"), 0), writer)

    def held_bytes(self, config: Config, rank: int) -> int:
        """Bytes of the state, once more for the copy of a save in the background, or for a restore."""
        options = config.checkpoint
        restores = options.restore or config.train.resume is not None
        copies = 1 + (options.async_save != "none" or restores)
        if options.tensors:
            return copies * listed_bytes(options)
        return copies * rank_bytes(config.model, config.parallel, rank)

    def flushes(self, config: Config) -> bool:
        return config.checkpoint.fsync or config.checkpoint.sync_files

    def check(self, config: Config) -> None:
        from dlio_torch.checkpoint.layouts.dcp.background import check_background
        from dlio_torch.checkpoint.layouts.dcp.torch_features import check_torch

        check_torch(config.checkpoint)
        check_background(config.checkpoint)

    def open(self, setup: SaverSetup) -> Saver:
        self.check(setup.config)
        from dlio_torch.checkpoint.layouts.dcp.saver import DcpSaver

        return DcpSaver(setup)


def _listed_bytes(options: CheckpointConfig, rank: int) -> int:
    """Bytes of listed tensors that a rank writes; what all ranks hold counts on the first of them."""
    return listed_bytes(options) if rank == 0 or not options.use_collectives else 0


@functools.lru_cache(maxsize=4)
def _is_shared(model: ModelConfig, parallel: ParallelConfig) -> bool:
    """Whether several ranks hold the same block of a parameter."""
    first_ranks = range(0, parallel.world_size, parallel.tensor * parallel.data)  # of the stages
    shards = (shard for rank in first_ranks for shard in rank_shards(model, parallel, rank))
    return any(_copies(parallel, shard, tied=model.tied_embeddings) > 1 for shard in shards)


def _copies(parallel: ParallelConfig, shard: Shard, *, tied: bool) -> int:
    """Number of ranks that hold the same block of a parameter."""
    parameter = shard.parameter
    ranks = data_ranks(parallel, parameter)
    shards = max(1, fsdp_ranks(parallel) // (parallel.data // ranks))
    copies = ranks // shards * (parallel.tensor if parameter.split is None else 1)
    return copies * 2 if tied and parameter.name == EMBEDDING and parallel.pipeline > 1 else copies
