from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import run_launcher

from dlio_torch import cli
from dlio_torch.dist.launcher import Launch, detect, slurm_rendezvous
from dlio_torch.errors import ConfigError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
HOROVODRUN = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2"}
SRUN = {"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "3", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
    ("environ", "expected", "backend"),
    [
        ({}, Launch("single", 0, 1, 0), "single"),
        (TORCHRUN, Launch("torchrun", 3, 8, 1), "torch"),
        (HOROVODRUN, Launch("horovodrun", 1, 2, 0), "horovod"),
        (OPEN_MPI, Launch("mpirun", 5, 6, 2), "horovod"),
        (MPICH, Launch("mpirun", 2, 4, 2), "horovod"),
        (SRUN, Launch("srun", 7, 8, 3), "torch"),
    ],
    ids=["none", "torchrun", "horovodrun", "open-mpi", "mpich", "srun"],
)
def test_each_launcher_is_recognised(environ: dict[str, str], expected: Launch, backend: str) -> None:
    launch = detect(environ)
    assert launch == expected
    assert launch.backend == backend


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (SRUN | TORCHRUN, "torchrun"),
        (SRUN | HOROVODRUN, "horovodrun"),
        (OPEN_MPI | HOROVODRUN, "horovodrun"),
        (SRUN | OPEN_MPI, "mpirun"),
        (SRUN | MPICH, "srun"),  # srun --mpi=pmi2
    ],
)
def test_the_inner_one_of_nested_launchers_counts(environ: dict[str, str], name: str) -> None:
    assert detect(environ).name == name


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "1"},  # in a batch script
        SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},  # srun --pty bash
        {"WORLD_SIZE": "8"},  # half of a launcher
        {"RANK": "1"},
    ],
)
def test_what_is_no_rank_runs_alone(environ: dict[str, str]) -> None:
    assert detect(environ) == Launch("single", 0, 1, 0)


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="RANK='one'"):
        detect({"RANK": "one", "WORLD_SIZE": "2"})


def test_a_rank_beyond_the_world_is_refused() -> None:
    with pytest.raises(ConfigError, match="HOROVOD_RANK=2 is not below HOROVOD_SIZE=2"):
        detect({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "2"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("nid[000012-000013,000020]", "nid000012"),
        ("gpu[003,005-007]n1,login2", "gpu003n1"),
        ("rack[1-2]n[4-5]", "rack1n4"),
    ],
)
def test_ranks_of_a_slurm_step_meet_on_its_first_node(nodes: str, first: str) -> None:
    environ = {"SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0"}
    host, port = slurm_rendezvous(environ)
    assert host == first
    assert 20000 <= port < 30000
    assert slurm_rendezvous(environ) == (host, port)
    assert slurm_rendezvous(environ | {"SLURM_STEP_ID": "1"})[1] != port


def test_outside_a_slurm_step_there_is_nowhere_to_meet() -> None:
    with pytest.raises(ConfigError, match="SLURM_STEP_NODELIST"):
        slurm_rendezvous({})


def test_asking_for_the_launcher_does_not_import_torch() -> None:
    code = "import sys, dlio_torch.dist.launcher, dlio_torch.dist.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_summary_of_torchrun_has_the_line_of_the_failure(tmp_path: Path) -> None:
    words = ["-m", "dlio_torch", "train", "recipe=minimal", "scale=tiny", f"dataset.root={tmp_path / 'none'}"]
    ended = run_launcher("torchrun", 2, words, cwd=tmp_path)
    assert ended.exit_code == 1
    summary = ended.stderr.rpartition("FAILED")[2]
    lines = [line for line in summary.splitlines() if "dlio_torch: error: " in line]
    assert len(lines) == 2, ended.stderr  # of each rank
    assert all("none/minimal-" in line and "does not exist" in line for line in lines), ended.stderr


def test_the_first_line_of_a_failure_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    assert cli.main(["recipe=nonesuch"]) == 2
    assert cli.main(["nonesuch"]) == 2
    message = json.loads(file.read_text())["message"]
    assert message["message"].startswith("dlio_torch: error: recipe=nonesuch")
    assert int(message["extraInfo"]["timestamp"]) > 0
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "none/error.json"))  # a folder that has gone
    assert cli.main(["recipe=nonesuch"]) == 2
