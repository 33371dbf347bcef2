"""The scripts that install Horovod and a parallel h5py, as far as they go without building: CI builds Horovod."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dlio_torch.dist

SCRIPT = Path(dlio_torch.dist.__file__).with_name("install_horovod.sh")
PATH = "/usr/bin:/bin"
# Stands for torch, and says that the environment lies elsewhere.
TORCH = """
class version: cuda = {cuda!r}
class cuda: get_arch_list = staticmethod(lambda: ["sm_80", "sm_90", "compute_90"])
__version__ = "9.9.9"
"""


def script(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env={"PATH": PATH, "HOME": "/nonexistent"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A python of the environment ``tmp_path/env``, with a torch for CUDA 13.0 and without packages."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text(TORCH.format(cuda="13.0"))
    (modules / "sitecustomize.py").write_text(f"import sys\nsys.prefix = {str(tmp_path / 'env')!r}\n")
    return executable(tmp_path / "python", f'PYTHONPATH={modules} exec {sys.executable} "$@"')


def test_help_says_where_wheels_are_kept() -> None:
    done = script("--help")
    assert done.returncode == 0
    assert "DLIO_TORCH_WHEELS" in done.stdout
    assert "--mpi" in done.stdout
    assert "--nccl" in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.parametrize("arguments", [("--cuda",), ("--mpi", "now")])
def test_an_unknown_argument_is_refused(arguments: tuple[str, ...]) -> None:
    done = script(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    bare = executable(tmp_path / "python", f'exec {sys.executable} -I -S "$@"')
    done = script("--python", str(bare))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"install_horovod: {bare} has no torch; install torch first"


def refused(python: Path, *arguments: str, **environ: str) -> str:
    done = script("--python", str(python), *arguments, **environ)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line.removeprefix("install_horovod: ")


def test_mpi_needs_its_compiler(python: Path) -> None:
    if shutil.which("mpicxx", path=PATH):
        pytest.skip("an MPI is installed on this system")
    line = refused(python, "--mpi")
    assert line.startswith(f"--mpi needs mpicxx, beside {python} or on PATH; pip install mpich")


def test_an_environment_s_own_mpi_comes_first_and_moves_with_the_wheel(python: Path, tmp_path: Path) -> None:
    show = ("--python", str(python), "--mpi", "--show")
    system = executable(tmp_path / "bin" / "mpicxx", "echo c++ -lmpi")
    shown = script(*show, PATH=f"{system.parent}:{PATH}").stdout
    assert f'set(MPI_CXX_COMPILER "{system}"' in shown
    assert "HOROVOD_WITH_MPI=1" in shown
    assert "RPATH" not in shown
    own = executable(tmp_path / "env" / "bin" / "mpicxx", f"echo c++ -L{tmp_path}/env/lib -lmpi")
    shown = script(*show, PATH=f"{system.parent}:{PATH}", DLIO_TORCH_WHEELS=str(tmp_path)).stdout
    assert f'set(MPI_CXX_COMPILER "{own}"' in shown
    assert 'set(CMAKE_BUILD_RPATH "\\$ORIGIN/../../../..")' in shown
    # The wheel of one environment serves the next: where it lies is no part of the key.
    folder = shown.splitlines()[0].removeprefix("wheel: to be built in ")
    executable(own, "echo c++ -L/elsewhere/lib -lmpi")
    assert script(*show, DLIO_TORCH_WHEELS=str(tmp_path)).stdout.splitlines()[0] != f"wheel: to be built in {folder}"
    executable(own, f"echo c++ -L{tmp_path}/env/lib -lmpi")
    wheel = Path(folder) / f"horovod-0.28.1-cp{sys.version_info[0]}{sys.version_info[1]}-linux.whl"
    wheel.parent.mkdir()
    wheel.touch()
    assert script(*show, DLIO_TORCH_WHEELS=str(tmp_path)).stdout.splitlines()[0] == f"wheel: {wheel}"


def test_nccl_says_what_is_missing(python: Path, tmp_path: Path) -> None:
    cuda = tmp_path / "cuda"
    assert refused(python, "--nccl", HOROVOD_CUDA_HOME=str(cuda)) == f"HOROVOD_CUDA_HOME={cuda} holds no bin/nvcc"
    if not shutil.which("nvcc", path=PATH):
        line = "--nccl needs nvcc on PATH, or HOROVOD_CUDA_HOME; install the CUDA toolkit 13.0"
        assert refused(python, "--nccl") == line
    nvcc = executable(cuda / "bin" / "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.99'")
    assert refused(python, "--nccl", HOROVOD_CUDA_HOME=str(cuda)) == (
        f"torch 9.9.9 is for CUDA 13.0, but {nvcc} is of CUDA 12.4; install the CUDA toolkit 13.0"
    )
    executable(nvcc, "echo 'Cuda compilation tools, release 13.1, V13.1.1'")
    if not list(Path("/usr").glob("include/nccl.h")) and not list(Path("/usr/local").glob("include/nccl.h")):
        assert refused(python, "--nccl", HOROVOD_CUDA_HOME=str(cuda)) == (
            "--nccl finds no nccl.h with its libnccl.so; pip install nvidia-nccl-cu13, or set HOROVOD_NCCL_HOME"
        )
    (tmp_path / "modules" / "torch.py").write_text(TORCH.format(cuda=None))
    assert refused(python, "--nccl") == f"--nccl needs a torch for CUDA, but torch 9.9.9 of {python} has none"


@pytest.mark.parametrize("where", ["package", "home"])
def test_nccl_is_handed_to_the_build(python: Path, tmp_path: Path, where: str) -> None:
    """Of the pip package, whose library has no name without a version; or of a folder that is named."""
    nvcc = executable(tmp_path / "cuda" / "bin" / "nvcc", "echo 'Cuda compilation tools, release 13.1, V13.1.1'")
    home = tmp_path / ("modules/nvidia/nccl" if where == "package" else "nccl")
    for part in ("include/nccl.h", "lib/libnccl.so.2"):
        (home / part).parent.mkdir(parents=True, exist_ok=True)
        (home / part).touch()
    named = {"HOROVOD_NCCL_HOME": str(home)} if where == "home" else {}
    done = script("--nccl", "--show", "--python", str(python), PATH=f"{nvcc.parent}:{PATH}", **named)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert shown[0].endswith("/9.9.9-gloo-nccl")
    assert {
        "HOROVOD_GPU_OPERATIONS=NCCL",
        "HOROVOD_NCCL_LINK=SHARED",
        f"CUDA_HOME={nvcc.parent.parent}",
        f"HOROVOD_NCCL_INCLUDE={home}/include",
        "HOROVOD_BUILD_CUDA_CC_LIST=80,90",
        f'set(CMAKE_CUDA_COMPILER "{nvcc}" CACHE FILEPATH "")',
        f"NCCL: {home}/lib/libnccl.so.2",
    } <= set(shown)


def test_without_nccl_no_gpu_is_asked_for(python: Path) -> None:
    shown = script(
        "--show", "--python", str(python), HOROVOD_GPU_OPERATIONS="NCCL", HOROVOD_GPU_ALLREDUCE="NCCL"
    ).stdout
    assert "HOROVOD_WITHOUT_MPI=1" in shown
    assert "HOROVOD_GPU_ALLREDUCE" not in shown
    assert "HOROVOD_GPU_OPERATIONS=" not in shown


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
