"""The benchmark of planning: its rows, and that a later save finds its plans cached."""

from __future__ import annotations

from argparse import Namespace

import pytest
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from benchmarks.checkpoint_plans import ALL_PLANNING, GLOBAL_STEP, SMALL, RankPlanner, run, sharded
from benchmarks.harness.tables import Row, Table
from benchmarks.saving.plan_steps import GATHER, METADATA
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state


def planner_of(rank: int) -> DefaultSavePlanner:
    planner = RankPlanner(rank)
    planner.set_up_planner(job_state(SMALL, sharded(2), rank - 101, device="meta"), None, is_coordinator=rank == 101)
    return planner


def seconds(row: Row, step: str) -> float:
    value = row[step]
    assert isinstance(value, float)
    return value


def test_tables_have_a_row_for_each_number_of_ranks() -> None:
    *plans, cached, gloo = run(Namespace(quick=True, ranks=(), cached=0, processes=()))
    rows = [row for table in plans if isinstance(table, Table) for row in table.rows]
    assert [row["ranks"] for row in rows] == [2, 4]
    two, four = rows
    # Rows of each tensor are divided, so that each rank has an entry for it.
    assert four["entries of all plans"] == 2 * int(str(two["entries of all plans"]))
    for table in (cached, gloo):
        assert isinstance(table, Table), table
        first, later, factor = table.rows
        assert (first["save"], later["save"], factor["save"]) == ("first", "later", "first / later")
        assert factor[ALL_PLANNING] == pytest.approx(seconds(first, ALL_PLANNING) / seconds(later, ALL_PLANNING))
        assert seconds(first, GATHER) < seconds(first, GLOBAL_STEP) < seconds(first, ALL_PLANNING)
        assert later[METADATA] is not None


def test_ranks_of_one_process_have_caches_of_their_own() -> None:
    for usable in (True, False):
        planners = [planner_of(rank) for rank in (101, 102)]
        plans = [planner.create_local_plan() for planner in planners]
        assert [plan.usable for plan in plans] == [usable, usable]
        final, _ = planners[0].create_global_plan(plans)
        for planner, plan in zip(planners, final, strict=True):
            assert planner.finish_plan(plan).items
