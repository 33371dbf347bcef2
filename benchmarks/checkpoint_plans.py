"""Measures what planning a checkpoint of many ranks costs: Llama 3 8B with FSDP, simulated ranks in one process.

``torch.distributed.checkpoint`` plans on each rank, gathers all plans on one of them, makes the plan of all ranks and
sends it back; at hundreds of ranks this takes longer than writing.  Tensors are meta tensors, planner and writer are
the library's own, and nothing is written.  No plan is sent over a network.

The tables ``cached`` and ``gloo`` are about ``enable_plan_caching``: the first save plans, and later ones find their
plans unchanged.  ``cached`` plays all ranks in one process, so that it can have hundreds of them: what a rank sends is
pickled and unpickled, no network is part of it, and times are processor time.  In ``gloo`` each rank is a process, and
``save`` of the library runs as it is, except that no tensor is written.  Steps are those of the coordinator:

plan of a rank  flattening its state, listing its tensors and, with a cache, comparing the list with the last one
gather          making the folder, and gathering the plans of all ranks; unchanged ones are empty
plan of all     removing what several ranks hold, making the description, checking it
scatter         of the final plans, and taking this rank's
results         gathering the entries of what the ranks wrote; no cache shortens it, nor the next two
.metadata       pickling the description of all files, and writing it with fsync
broadcast       of the description to all ranks
global step     the sum of gather, plan of all and scatter
planning        the same with the plan of a rank
in all          the sum of all steps: a save without its tensors

Published (pytorch pull request 149785): the global step of 256 ranks fell from more than 90 s to 1.5 s, most of which
was creating folders and a collective call that carries next to nothing.
"""

from __future__ import annotations

import gc
import pickle
import resource
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Unavailable, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.saving.plan_ranks import step_times
from benchmarks.saving.plan_steps import (
    GATHER,
    GLOBAL,
    LOCAL,
    METADATA,
    RESULTS,
    SCATTER,
    STEPS,
    StepTimes,
    entries,
)
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.checkpoint.layouts.dcp.simulated_ranks import SimulatedRanks
from dlio_torch.config.compose import compose
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

NAME = "checkpoint_plans"
RANKS = (8, 64, 128, 512, 1024)
CACHED = 256
PROCESSES = (8, 32)
SAVES = 4
"""Saves with cached plans: the first, and later ones."""
GLOBAL_STEP, ALL_PLANNING, IN_ALL = "global step, s", "planning, s", "in all, s"
MODEL = compose(["recipe=llama3_8b", "scale=paper"]).config.model
SMALL = ModelConfig(hidden_size=64, num_layers=2, num_heads=4, ffn_hidden_size=128, vocab_size=512)
MB = 1e6


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=RANKS, help="numbers of ranks; 1,024 take ten minutes and 8 GiB"
    )
    parser.add_argument("--cached", type=int, default=CACHED, help="number of ranks of the table 'cached'")
    parser.add_argument(
        "--processes", type=int, nargs="+", default=PROCESSES, help="numbers of ranks of the table 'gloo'"
    )


def run(arguments: Namespace) -> Iterator[Part]:
    model = SMALL if arguments.quick else MODEL
    for ranks in (2, 4) if arguments.quick else sorted(arguments.ranks):
        say(f"{ranks} ranks")
        yield Table("plans", [planned(model, ranks)])
    ranks = 4 if arguments.quick else arguments.cached
    say(f"cached plans of {ranks} ranks")
    title = f"Saves of {ranks} ranks in one process, without tensors and network."
    yield Table("cached", cached_rows(played(model, ranks)), title)
    for ranks in (2,) if arguments.quick else sorted(arguments.processes):
        say(f"cached plans of {ranks} processes")
        try:
            times = step_times(model, sharded(ranks), SAVES)
        except Unavailable as error:
            yield Missing(f"{ranks} processes", str(error), "gloo")
            continue
        yield Table("gloo", cached_rows(times), f"Saves of {ranks} processes over gloo, without tensors.")


def played(model: ModelConfig, ranks: int) -> list[dict[str, float]]:
    """Seconds of the steps of saves of ranks in this process."""
    played_ranks = PlayedRanks(model, ranks)
    with tempfile.TemporaryDirectory() as folder:
        return [played_ranks.save(Path(folder) / str(number)) for number in range(SAVES)]


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


def cached_rows(times: Sequence[Mapping[str, float]]) -> list[Row]:
    """Rows of the first save, of the median of later ones, and of the factor between them.

    Args:
        times: seconds of the steps of each save.
    """
    later = {step: statistics.median(seconds[step] for seconds in times[1:]) for step in times[0]}
    first, rest = (_with_sums(seconds) for seconds in (times[0], later))
    factors = {
        step: first[step] / rest[step] if step in (GLOBAL_STEP, ALL_PLANNING, IN_ALL) else None for step in first
    }
    return [{"save": "first", **first}, {"save": "later", **rest}, {"save": "first / later", **factors}]


def _with_sums(seconds: Mapping[str, float]) -> dict[str, float]:
    collective_s = sum(seconds[step] for step in (GATHER, GLOBAL, SCATTER))
    sums = {GLOBAL_STEP: collective_s, ALL_PLANNING: seconds[LOCAL] + collective_s, IN_ALL: sum(seconds.values())}
    return {**{step: seconds[step] for step in STEPS if step in seconds}, **sums}


class RankPlanner(DefaultSavePlanner):
    """A planner that finds the cached plans of its rank; the library keeps those of one rank in a process."""

    def __init__(self, rank: int) -> None:
        super().__init__(enable_plan_caching=True)
        self._cached_plans_key = f"rank {rank}"


class PlayedRanks:
    """All ranks of a job in this process.

    Args:
        model: the model.
        ranks: number of ranks.
    """

    def __init__(self, model: ModelConfig, ranks: int) -> None:
        self._states = [job_state(model, sharded(ranks), rank, device="meta") for rank in range(ranks)]

    def save(self, folder: Path) -> dict[str, float]:
        """Plans a save and writes its description; returns the seconds of the steps of the coordinator."""
        times, writer = StepTimes(time.thread_time), FileSystemWriter(folder)
        writer.set_up_storage_writer(is_coordinator=True)
        planners = [RankPlanner(rank) for rank in range(len(self._states))]
        local_s, sent = self._local_plans(planners)
        gc.freeze()  # the coordinator's collector would not visit the objects of other ranks
        times.begin()
        plans = [writer.prepare_local_plan(pickle.loads(plan)) for plan in sent]
        times.end(GATHER)
        final, metadata = planners[0].create_global_plan(plans)
        final = writer.prepare_global_plan(final)
        times.end(GLOBAL)
        returned = [pickle.dumps(plan) for plan in final]
        planners[0].finish_plan(pickle.loads(returned[0]))
        times.end(SCATTER)
        written = _written(planners, returned)
        gc.freeze()
        times.begin()
        results = [pickle.loads(entry) for entry in written]
        times.end(RESULTS)
        writer.finish(metadata, results)
        times.end(METADATA)
        gc.unfreeze()
        return {LOCAL: local_s, **times.seconds}

    def _local_plans(self, planners: Sequence[RankPlanner]) -> tuple[float, list[bytes]]:
        """Median seconds of the plan of a rank, and the plans as they are sent."""
        spent_s, sent = [], []
        for rank, (planner, state) in enumerate(zip(planners, self._states, strict=True)):
            start = time.thread_time()
            planner.set_up_planner(state, None, is_coordinator=rank == 0)
            plan = planner.create_local_plan()
            spent_s.append(time.thread_time() - start)
            sent.append(pickle.dumps(plan))
        return statistics.median(spent_s), sent


def _written(planners: Sequence[RankPlanner], returned: Sequence[bytes]) -> list[bytes]:
    """Entries of the tensors of each rank, as they are sent."""
    plans = [planner.finish_plan(pickle.loads(plan)) for planner, plan in zip(planners, returned, strict=True)]
    return [pickle.dumps(entries(plan, f"__{rank}_0.distcp")) for rank, plan in enumerate(plans)]


def sharded(ranks: int) -> ParallelConfig:
    """Ranks that share all tensors by FSDP."""
    return ParallelConfig(data=ranks, fsdp="full")


if __name__ == "__main__":
    alone(NAME)
