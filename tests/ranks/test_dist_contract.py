"""One contract for all communicators, kept by real processes.

Each case is a function of ``dist_program.py``.  Where one rank fails, the others wait in a collective
that would take the default timeout of five minutes: that the test ends shows that they were told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import pytest
from ranks import SUPPORT, Ended, Kind, need_horovod, run_launcher, run_ranks

from dlio_torch.dist.registry import horovod_has_mpi

PROGRAM = SUPPORT / "dist_program.py"
SINGLE = pytest.param("single", 1, id="single")
TORCH = pytest.param("torch", 2, id="torch-2", marks=pytest.mark.ranks)
TORCH_4 = pytest.param("torch", 4, id="torch-4", marks=pytest.mark.ranks)
HOROVOD = pytest.param("horovod", 2, id="horovod-2", marks=[pytest.mark.ranks, pytest.mark.horovod])
# What is MPI's own of the rest is in test_dist_mpi.py.
MPI = pytest.param("mpi", 2, id="mpi-2", marks=[pytest.mark.ranks, pytest.mark.needs("mpi")])
# Below mpiexec, Horovod comes before MPI itself where it was built for that.
HOROVOD_MPI = pytest.param("horovod_mpi", 2, id="horovod-mpi-2", marks=[pytest.mark.ranks, pytest.mark.horovod])
several = pytest.mark.parametrize(("kind", "world_size"), [TORCH, HOROVOD, HOROVOD_MPI])


def run(kind: Kind | Literal["horovod_mpi"], world_size: int, *case: str) -> list[Ended]:
    if kind == "horovod_mpi":
        need_horovod_mpi()
        kind = "mpi"
    return run_ranks(kind, world_size, [PROGRAM, *case])


def need_horovod_mpi() -> None:
    need_horovod()
    if not horovod_has_mpi():
        pytest.skip("the installed Horovod has no MPI controller (install_horovod.sh --mpi builds it)")


def codes(ended: Sequence[Ended]) -> list[int]:
    return [rank.exit_code for rank in ended]


def reports(text: str) -> list[str]:
    """The lines that say which rank failed or died, without what a launcher puts before them."""
    return re.findall(r"rank \d+ (?:failed: .*|\(pid \d+, host [^)]*\) died)", text)


@pytest.mark.parametrize(("kind", "world_size"), [SINGLE, TORCH, TORCH_4, HOROVOD, HOROVOD_MPI, MPI])
def test_collectives(kind: Kind, world_size: int) -> None:
    ended = run(kind, world_size, "collectives", {"mpi": "mpi:mpi", "horovod_mpi": "horovod"}.get(kind, kind))
    assert codes(ended) == [0] * world_size, "\n".join(rank.stderr for rank in ended)
    detail = {"single": "one process", "torch": "(gloo|nccl)", "horovod": "gloo"}.get(kind, "mpi")
    for number, rank in enumerate(ended):
        assert re.fullmatch(f"done {number} {world_size} {detail}\n", rank.stdout)


@pytest.mark.parametrize("late", [0, 1])
@several
def test_a_late_close_is_no_failure(kind: Kind, world_size: int, late: int) -> None:
    ended = run(kind, world_size, "close_late", str(late))
    assert codes(ended) == [0, 0]
    assert [rank.stdout for rank in ended] == ["done\n", "done\n"]
    assert reports("".join(rank.stderr for rank in ended)) == []


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize(("kind", "world_size"), [TORCH, TORCH_4, HOROVOD, HOROVOD_MPI])
def test_a_failing_rank_ends_the_others_with_its_code(kind: Kind, world_size: int, failing: int) -> None:
    ended = run(kind, world_size, "fail", str(failing))
    assert codes(ended) == [3] * world_size
    line = f"rank {failing} failed: the disk is full"
    assert reports("".join(rank.stderr for rank in ended)) == ([] if failing == 0 else [line])
    for number, rank in enumerate(ended):
        assert rank.stdout == ("" if number == failing else f"hook: {line} [3]\n")


@several
def test_ranks_that_fail_together_keep_the_code(kind: Kind, world_size: int) -> None:
    assert codes(run(kind, world_size, "all_fail", "4")) == [4, 4]


@pytest.mark.parametrize("killed", [0, 1])
@several
def test_a_killed_rank_ends_the_others(kind: Kind, world_size: int, killed: int) -> None:
    ended = run(kind, world_size, "killed", str(killed))
    assert codes(ended) == [-9 if rank == killed else 1 for rank in range(world_size)]
    (line,) = reports("".join(rank.stderr for rank in ended))
    assert re.fullmatch(rf"rank {killed} \(pid \d+, host .+\) died", line)


@several
def test_a_failing_rank_leaves_though_its_exit_handlers_hang(kind: Kind, world_size: int) -> None:
    assert codes(run(kind, world_size, "stuck_exit", "1")) == [5, 5]


@pytest.mark.parametrize(("how", "method"), [("kill", "fork"), ("kill", "forkserver"), ("fail", "spawn")])
@several
def test_children_neither_hide_a_rank_s_end_nor_survive_it(kind: Kind, world_size: int, how: str, method: str) -> None:
    first, second = run(kind, world_size, "children", f"{how}:{method}")
    assert codes([first, second]) == ([1, -9] if how == "kill" else [3, 3])
    assert len(first.stdout.split()) == 3
    assert first.running == ()
    if how == "fail":
        assert second.running == ()


@pytest.mark.parametrize("missing", [0, 1])
@several
def test_a_rank_that_fails_before_it_connects_is_not_waited_for(kind: Kind, world_size: int, missing: int) -> None:
    ended = run(kind, world_size, "never_connects", str(missing))
    assert codes(ended) == [2 if rank == missing else 1 for rank in range(world_size)]
    other = 1 - missing
    assert f"rank {other} of 2 could not connect to the other ranks" in ended[other].stderr


@several
def test_a_rank_that_never_joins_a_collective_is_not_waited_for(kind: Kind, world_size: int) -> None:
    ended = run(kind, world_size, "never_comes", "1")
    assert codes(ended) == [1, 1]
    said = "".join(rank.stdout + rank.stderr for rank in ended)
    assert re.search(
        r"rank 1 \(pid \d+, host [^)]*\) did not enter allreduce \(collective \d\) within 6 s: the rank.s last", said
    )


# What the launchers make of it. Each rank's own exit code is what this package promises: torchrun and
# horovodrun return 1 for any failure, and name the ranks' codes in their report.


@pytest.mark.ranks
def test_torchrun() -> None:
    good = run_launcher("torchrun", 2, [PROGRAM, "collectives", "torch"])
    assert good.exit_code == 0, good.stderr
    # The ranks share one stdout: the newline of one may come after the line of another.
    assert sorted(re.findall(r"done \d \d \w{4}", good.stdout)) == ["done 0 2 gloo", "done 1 2 gloo"]
    bad = run_launcher("torchrun", 2, [PROGRAM, "fail", "1"])
    assert bad.exit_code == 1
    told, _, summary = bad.stderr.partition("====")  # torchrun's summary says it once more
    assert reports(told) == ["rank 1 failed: the disk is full"]
    assert "rank 1 failed: the disk is full" in summary
    assert re.findall(r"exitcode +: (-?\d+)", bad.stderr) == ["3", "3"]


@pytest.mark.ranks
@pytest.mark.horovod
def test_horovodrun() -> None:
    need_horovod()
    good = run_launcher("horovodrun", 2, [PROGRAM, "collectives", "horovod"])
    assert good.exit_code == 0, good.stderr
    assert sorted(good.stdout.splitlines()) == ["[0]<stdout>:done 0 2 gloo", "[1]<stdout>:done 1 2 gloo"]
    bad = run_launcher("horovodrun", 2, [PROGRAM, "fail", "1"])
    assert bad.exit_code == 1
    assert reports(bad.stderr) == ["rank 1 failed: the disk is full"]
    assert sorted(re.findall(r"Process (\d) exit with status code (\d+)", bad.stdout)) == [("0", "3"), ("1", "3")]


@pytest.mark.ranks
@pytest.mark.horovod
def test_mpiexec_with_horovod_returns_the_code_of_the_rank() -> None:
    need_horovod_mpi()
    good = run_launcher("mpiexec", 2, [PROGRAM, "collectives", "horovod"])
    assert good.exit_code == 0, good.stderr
    assert sorted(re.findall(r"done \d \d \w{3}", good.stdout)) == ["done 0 2 mpi", "done 1 2 mpi"]
    bad = run_launcher("mpiexec", 2, [PROGRAM, "fail", "1"])
    assert bad.exit_code == 3
    assert reports(bad.stderr) == ["rank 1 failed: the disk is full"]


@pytest.mark.ranks
def test_a_launcher_and_a_backend_that_do_not_fit() -> None:
    ended = run_ranks("torch", 2, [PROGRAM, "backend", "horovod"])
    assert codes(ended) == [2, 2]
    for rank in ended:
        assert rank.stderr == (
            "error: dist.backend=horovod does not work with the launcher that started this process, torchrun; "
            "start the ranks with horovodrun -np <n> python -m dlio_torch ..., or set dist.backend=auto\n"
        )
