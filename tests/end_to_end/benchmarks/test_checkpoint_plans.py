"""The benchmark of planning: its rows, and that a later save finds its plans cached."""

from __future__ import annotations

from argparse import Namespace

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from benchmarks.checkpoint_plans import SMALL, RankPlanner, run, sharded
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state


def planner_of(rank: int) -> DefaultSavePlanner:
    planner = RankPlanner(rank)
    planner.set_up_planner(job_state(SMALL, sharded(2), rank - 101, device="meta"), None, is_coordinator=rank == 101)
    return planner


def test_tables_have_a_row_for_each_number_of_ranks() -> None:
    *plans, cached = run(Namespace(quick=True, ranks=(), cached=0))
    rows = [row for table in plans for row in table.rows]
    assert [row["ranks"] for row in rows] == [2, 4]
    two, four = rows
    # Rows of each tensor are divided, so that each rank has an entry for it.
    assert four["entries of all plans"] == 2 * int(str(two["entries of all plans"]))
    assert [row["save"] for row in cached.rows] == ["first", "later", "first / later"]


def test_ranks_of_one_process_have_caches_of_their_own() -> None:
    for usable in (True, False):
        planners = [planner_of(rank) for rank in (101, 102)]
        plans = [planner.create_local_plan() for planner in planners]
        assert [plan.usable for plan in plans] == [usable, usable]
        final, _ = planners[0].create_global_plan(plans)
        for planner, plan in zip(planners, final, strict=True):
            assert planner.finish_plan(plan).items
