"""Measures what planning a checkpoint of many ranks costs: Llama 3 8B with FSDP, simulated ranks in one process.

``torch.distributed.checkpoint`` plans on each rank, gathers all plans on one of them, makes the plan of all ranks and
sends it back; at hundreds of ranks this takes longer than writing.  Tensors are meta tensors, planner and writer are
the library's own, and nothing is written.  No plan is sent over a network.

The second table is about ``enable_plan_caching``: the first save plans, and later ones find their plans unchanged.
A save counts the plan of one rank, and on the coordinator unpickling the plans of all ranks, planning, and pickling
the plans that it sends back.  Published (pytorch issue 149785): 90 s became 1.5 s at 256 ranks.
"""

from __future__ import annotations

import itertools
import pickle
import resource
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Row, Table
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.checkpoint.layouts.dcp.simulated_ranks import SimulatedRanks
from dlio_torch.config.compose import compose
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

NAME = "checkpoint_plans"
RANKS = (8, 64, 128, 512, 1024)
CACHED = 256
MODEL = compose(["recipe=llama3_8b", "scale=paper"]).config.model
SMALL = ModelConfig(hidden_size=64, num_layers=2, num_heads=4, ffn_hidden_size=128, vocab_size=512)
MB = 1e6


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=RANKS, help="numbers of ranks; 1,024 take ten minutes and 8 GiB"
    )
    parser.add_argument("--cached", type=int, default=CACHED, help="number of ranks of the second table")


def run(arguments: Namespace) -> Iterator[Table]:
    model = SMALL if arguments.quick else MODEL
    for ranks in (2, 4) if arguments.quick else sorted(arguments.ranks):
        say(f"{ranks} ranks")
        yield Table("plans", [planned(model, ranks)])
    ranks = 4 if arguments.quick else arguments.cached
    say(f"cached plans of {ranks} ranks")
    title = f"Planning one save of {ranks} ranks, without the network."
    yield Table("cached", cached_rows(model, ranks), title)


def planned(model: ModelConfig, ranks: int) -> Row:
    """Cost of planning one checkpoint."""
    cost = SimulatedRanks(model, sharded(ranks), ranks).cost(Path("step-0"), {})
    return {
        "ranks": ranks,
        "entries of all plans": cost.tensors,
        "plan of a rank, ms": cost.local_s * 1e3,
        "plan of all, s": cost.global_s,
        "plans to gather, MB": cost.plan_bytes / MB,
        ".metadata, MB": cost.metadata_bytes / MB,
        "memory of this process, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


def cached_rows(model: ModelConfig, ranks: int) -> list[Row]:
    """Seconds of planning the first save and a later one, with cached plans."""
    first, later = (save_s(model, ranks) for _ in range(2))
    parts = ("plan of a rank, s", "unpickle, s", "plan of all, s", "pickle, s", "in all, s")
    rows: list[Row] = [
        {"save": name, **dict(zip(parts, seconds, strict=True))}
        for name, seconds in (("first", first), ("later", later))
    ]
    return [*rows, {"save": "first / later", **dict.fromkeys(parts[:-1]), parts[-1]: first[-1] / later[-1]}]


class RankPlanner(DefaultSavePlanner):
    """A planner that finds the cached plans of its rank; the library keeps those of one rank in a process."""

    def __init__(self, rank: int) -> None:
        super().__init__(enable_plan_caching=True)
        self._cached_plans_key = f"rank {rank}"


def save_s(model: ModelConfig, ranks: int) -> list[float]:
    """Seconds of the parts of planning a save, and their sum; from the second save on, plans are those of the first.

    Args:
        model: the model.
        ranks: number of ranks.
    """
    planners = [RankPlanner(rank) for rank in range(ranks)]
    for rank, planner in enumerate(planners):
        planner.set_up_planner(job_state(model, sharded(ranks), rank, device="meta"), None, is_coordinator=rank == 0)
    local_s, sent = [], []
    for planner in planners:
        start = time.perf_counter()
        plan = planner.create_local_plan()
        local_s.append(time.perf_counter() - start)
        sent.append(pickle.dumps(plan))
    marks = [time.perf_counter()]
    plans = [pickle.loads(plan) for plan in sent]
    marks.append(time.perf_counter())
    final, _ = planners[0].create_global_plan(plans)
    marks.append(time.perf_counter())
    returned = [pickle.dumps(plan) for plan in final]
    marks.append(time.perf_counter())
    for planner, plan in zip(planners, returned, strict=True):
        planner.finish_plan(pickle.loads(plan))
    parts = [sorted(local_s)[ranks // 2], *(end - begin for begin, end in itertools.pairwise(marks))]
    return [*parts, sum(parts)]


def sharded(ranks: int) -> ParallelConfig:
    """Ranks that share all tensors by FSDP."""
    return ParallelConfig(data=ranks, fsdp="full")


if __name__ == "__main__":
    alone(NAME)
