"""The environment of a run: machine, software, file systems, launcher.

A value that cannot be measured is ``None``, never 0, and :func:`describe` gives the reason under ``not_measured``.
torch is never imported here, and no GPU is used: a process that has used CUDA cannot fork loader workers any more.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlio_torch import __version__
from dlio_torch.environment.cores import physical_cores, quota_cores, usable_cores
from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.environment.nvidia_smi import GpuQueryFailed, mebibytes, query_gpus
from dlio_torch.environment.topology.host_memory import host_memory
from dlio_torch.environment.topology.processors import cpu_model

_PACKAGES = (
    "torch", "torchdata", "numpy", "h5py", "pandas", "omegaconf", "horovod", "mpi4py",
    "tensorboard", "torch-tb-profiler",
)  # fmt: skip
_JOBS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID", "lsf": "LSB_JOBID", "cobalt": "COBALT_JOBID"}
_LAUNCHERS = {
    "torchrun": "TORCHELASTIC_RUN_ID",
    "horovodrun": "HOROVOD_RANK",
    "openmpi": "OMPI_COMM_WORLD_RANK",
    "mpich": "PMI_RANK",
    "pmix": "PMIX_RANK",
    "srun": "SLURM_STEP_ID",
}
# Variables that change the behaviour of I/O, threads or ranks; others may hold secrets.
_VARIABLES = re.compile(
    r"(DLIO|HDF5|OMP|MKL|OPENBLAS|NCCL|GLOO|HOROVOD|UCX|KINETO|CUDA_VISIBLE|MALLOC|DARSHAN|LD_PRELOAD$|TMPDIR$)"
)
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL")


def describe(paths: Mapping[str, Path | str]) -> dict[str, Any]:
    """Describes all properties of this machine that can influence measured figures, as JSON-compatible values.

    Args:
        paths: paths by name, for example ``{"data": ..., "runs": ...}``; their file systems are described.  A path
            that does not exist yet is described by its nearest existing parent.

    Returns:
        A dictionary with ``host``, ``cpu``, ``memory``, ``gpus``, ``versions``, ``mounts``, ``limits``, ``job``,
        ``launcher``, ``git_commit``, ``variables`` and ``not_measured`` (reason by dotted name).
        Sizes are in bytes.
    """
    why: dict[str, str] = {}
    result = {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": _cpu(why),
        "memory": _memory(why),
        "gpus": _gpus(why),
        "versions": _versions(why),
        "mounts": {name: describe_mount(name, Path(path), why) for name, path in paths.items()},
        "limits": _limits(why),
        "job": next(
            ({"system": name, "id": os.environ[key]} for name, key in _JOBS.items() if key in os.environ), None
        ),
        "launcher": next((name for name, key in _LAUNCHERS.items() if key in os.environ), None),
        "git_commit": _git_commit(why),
        "variables": {
            key: value for key, value in sorted(os.environ.items()) if _VARIABLES.match(key) and not _SECRET.search(key)
        },
    }
    return {**result, "not_measured": why}


def _cpu(why: dict[str, str]) -> dict[str, Any]:
    model = cpu_model()
    if model is None:
        why["cpu.model"] = "/proc/cpuinfo names no model"
    quota = quota_cores()
    if quota is None:
        why["cpu.cores_quota"] = "no control group limits the CPU time"
    physical = physical_cores()
    if physical is None:
        why["cpu.cores_physical"] = "/sys/devices/system/cpu does not show which logical CPUs share a core"
    return {
        "model": model,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "cores_usable": usable_cores(),
        "cores_quota": quota,
        "cores_physical": physical,
        "affinity": format_cpus(os.sched_getaffinity(0)),
    }


def _memory(why: dict[str, str]) -> dict[str, int | None]:
    memory, names = host_memory(), ("total_bytes", "available_bytes", "limit_bytes")
    why.update({f"memory.{name}": memory.why[name] for name in names if name in memory.why})
    return {name: getattr(memory, name) for name in names}


def _gpus(why: dict[str, str]) -> list[dict[str, Any]] | None:
    """GPUs by nvidia-smi; None if it fails."""
    try:
        rows = query_gpus(("name", "memory.total", "driver_version", "uuid"))
    except GpuQueryFailed as error:
        why["gpus"] = error.message
        return None
    return [
        {
            "name": row["name"],
            "memory_bytes": mebibytes(row["memory.total"]),
            "driver": row["driver_version"],
            "uuid": row["uuid"],
        }
        for row in rows
    ]


def _versions(why: dict[str, str]) -> dict[str, str | None]:
    versions: dict[str, str | None] = {"dlio-torch": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
            why[f"versions.{name}"] = "not installed"
    # Only h5py knows the version of the HDF5 library; it is not imported just for this.
    h5py = sys.modules.get("h5py")
    versions["hdf5"] = h5py.version.hdf5_version if h5py is not None else None
    if h5py is None:
        why["versions.hdf5"] = "h5py was not loaded"
    return versions


def _limits(why: dict[str, str]) -> dict[str, int | None]:
    result: dict[str, int | None] = {}
    for name, value in zip(("open_files", "open_files_hard"), resource.getrlimit(resource.RLIMIT_NOFILE), strict=True):
        result[name] = None if value == resource.RLIM_INFINITY else value
        if result[name] is None:
            why[f"limits.{name}"] = "unlimited"
    return result


def _git_commit(why: dict[str, str]) -> str | None:
    """Commit of the checkout that this package runs from, with ``+`` if files were changed since."""
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        why["git_commit"] = "the package does not run from a git checkout"
        return None
    command = [git, "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if answer.returncode == 0:
            return answer.stdout.strip()
        reason = answer.stderr
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error)
    why["git_commit"] = " ".join(f"git failed: {reason}".split())
    return None
