"""The scripts that install Horovod and a parallel h5py, as far as they go without building: CI builds Horovod."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dlio_torch.dist

SCRIPT = Path(dlio_torch.dist.__file__).with_name("install_horovod.sh")


def script(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_says_where_wheels_are_kept() -> None:
    done = script("--help")
    assert done.returncode == 0
    assert "DLIO_TORCH_WHEELS" in done.stdout
    assert "--mpi" in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.parametrize("arguments", [("--cuda",), ("--mpi", "now")])
def test_an_unknown_argument_is_refused(arguments: tuple[str, ...]) -> None:
    done = script(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = script("--python", str(bare))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"install_horovod: {bare} has no torch; install torch first"


def test_mpi_needs_its_compiler(tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    done = script("--mpi", "--python", sys.executable, PATH=str(bare) + ":/usr/bin:/bin")
    if "mpicxx" not in done.stderr:
        pytest.skip("an MPI is installed on this system")
    assert done.returncode == 1
    assert "--mpi needs mpicxx on PATH" in done.stderr


PARALLEL = SCRIPT.with_name("install_parallel_h5py.sh")


def parallel(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(PARALLEL), "--python", sys.executable, *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_help_of_parallel_h5py_says_where_hdf5_is_looked_for() -> None:
    done = parallel("--help")
    assert done.returncode == 0
    for word in ("HDF5_DIR", "h5pcc", "pkg-config", "DLIO_TORCH_WHEELS", "MPIEXEC"):
        assert word in done.stdout
    assert "set -euo" not in done.stdout
    assert parallel("--mpi").returncode == 2


def test_an_hdf5_without_mpi_is_refused(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "include" / "H5pubconf.h").write_text("/* #undef H5_HAVE_PARALLEL */\n")
    (tmp_path / "lib" / "libhdf5.so").write_text("")
    done = parallel(HDF5_DIR=str(tmp_path))
    assert done.returncode == 1
    assert f"install_parallel_h5py: HDF5_DIR={tmp_path} holds no parallel HDF5" in done.stderr
