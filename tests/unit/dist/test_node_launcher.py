"""Commands that start further ranks on this node: the communicator and the launcher of this run decide."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.dist.launcher import Launch, LauncherName, without_launcher
from dlio_torch.dist.node_launcher import node_launcher
from dlio_torch.errors import PreconditionError


def command(name: str, launcher: LauncherName, ranks: int = 2) -> list[str]:
    comm = SingleCommunicator()
    comm.name, comm.world_size = name, ranks
    return node_launcher(comm, Launch(launcher, 0, ranks, 0))


@pytest.fixture
def mpiexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on PATH, and none beside Python."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "mpiexec"
    program.touch(0o755)
    return program


@pytest.mark.parametrize(("name", "launcher"), [("mpi", "mpirun"), ("mpi", "srun"), ("horovod", "mpirun")])
def test_ranks_of_mpi_are_started_by_mpiexec(name: str, launcher: LauncherName, mpiexec: Path) -> None:
    assert command(name, launcher) == [str(mpiexec), "-n", "2"]


def test_mpiexec_of_this_python_comes_first(mpiexec: Path) -> None:
    beside = mpiexec.parent / "bin/mpiexec"
    beside.touch(0o755)
    assert command("mpi", "mpirun")[0] == str(beside)


def test_without_mpiexec_there_are_no_ranks_of_mpi(mpiexec: Path) -> None:
    mpiexec.unlink()
    with pytest.raises(PreconditionError, match="mpiexec is neither on PATH nor beside this Python; put it on PATH"):
        command("mpi", "mpirun")


def test_ranks_of_horovod_without_mpi_are_started_by_horovodrun() -> None:
    python, *words = command("horovod", "horovodrun", ranks=3)
    assert python == sys.executable
    assert words[-5:] == ["--gloo", "-np", "3", "-H", "localhost:3"]


@pytest.mark.parametrize(
    ("name", "launcher", "ranks"),
    [
        *(("torch", "torchrun", 2), ("torch", "srun", 2), ("torch", "mpirun", 2)),
        *(("mpi", "mpirun", 1), ("single", "single", 1)),
    ],
)
def test_torchrun_and_single_ranks_need_no_other_launcher(name: str, launcher: LauncherName, ranks: int) -> None:
    assert command(name, launcher, ranks) == []


def test_the_environment_keeps_settings_and_loses_ranks() -> None:
    settings = {"HOROVOD_FUSION_THRESHOLD": "1", "HOROVOD_LOG_LEVEL": "error", "HYDRA_TOPO_DEBUG": "1"}
    ranks = {"HOROVOD_RANK": "0", "HOROVOD_GLOO_IFACE": "lo", "HOROVOD_TIMELINE": "DYNAMIC", "PMI_FD": "7"}
    assert without_launcher(settings | ranks | {"MPI_LOCALRANKID": "0", "PMIX_RANK": "0"}) == settings
