"""Ranks over MPI itself: what is its own of the communicators' contract, below a real mpiexec."""

from __future__ import annotations

import re

import pytest
from ranks import SUPPORT, run_launcher, run_ranks

PROGRAM = SUPPORT / "dist_program.py"
pytestmark = [pytest.mark.ranks, pytest.mark.needs("mpi")]


def test_mpiexec_returns_the_code_of_the_rank_and_keeps_its_line() -> None:
    bad = run_launcher("mpiexec", 2, [PROGRAM, "fail", "1"])
    assert bad.exit_code == 3, bad
    assert re.findall(r"rank \d+ failed: .*", bad.stderr) == ["rank 1 failed: the disk is full"]


def test_the_death_of_rank_0_ends_the_others() -> None:
    first, second = run_ranks("mpi", 2, [PROGRAM, "killed", "0"])
    assert (first.exit_code, second.exit_code) == (-9, 1)
    assert re.fullmatch(r"dlio_torch: error: rank 0 \(pid \d+, host .+\) died\n", second.stderr)


def test_a_rank_that_ends_before_mpi_starts_is_not_waited_for() -> None:
    # MPI_Init waits for it without an end, and mpi4py keeps the interpreter's lock meanwhile.
    first, second = run_ranks("mpi", 2, [PROGRAM, "never_connects", "0"])
    assert (first.exit_code, second.exit_code) == (2, 1)
    assert second.stderr == "rank 1 of 2 could not connect to the other ranks through MPI within 2 s\n"


def test_one_process_needs_no_launcher() -> None:
    (alone,) = run_ranks("single", 1, [PROGRAM, "collectives", "mpi:mpi"])
    assert alone.exit_code == 0, alone.stderr
    assert alone.stdout == "done 0 1 mpi\n"


def test_a_rank_that_waits_for_a_broadcast_leaves_its_core() -> None:
    # Other processes measure meanwhile; MPI's own wait would keep the core busy.
    _, second = run_ranks("mpi", 2, [PROGRAM, "late_root", "mpi"])
    assert second.exit_code == 0, second.stderr
    assert int(second.stdout.split()[1]) > 20
