"""The launcher that started this process, and the rank of this process.

It reads environment variables and imports the standard library alone, so that the
command line can use it before torch is loaded.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dlio_torch.errors import ConfigError

PARENT = os.getppid()
"""Id of the parent process, which is the launcher if :func:`detect` recognises a launcher."""

LauncherName = Literal["single", "torchrun", "horovodrun", "mpirun", "srun"]


@dataclass(frozen=True)
class Launch:
    """How this process was started.

    Attributes:
        name: ``torchrun``, ``horovodrun``, ``mpirun``, ``srun``, or ``single`` for no launcher.
        rank: number of this process, 0 to ``world_size - 1``.
        world_size: number of processes that the launcher started.
        local_rank: number of this process on its node.
    """

    name: LauncherName
    rank: int
    world_size: int
    local_rank: int

    @property
    def backend(self) -> Literal["single", "torch", "horovod"]:
        """The communicator that ``dist.backend=auto`` selects for this launcher."""
        if self.name == "single":
            return "single"
        return "torch" if self.name in ("torchrun", "srun") else "horovod"


@dataclass(frozen=True)
class _Variables:
    """Names of the variables that a launcher sets in each process."""

    launcher: LauncherName
    rank: str
    world_size: str
    local_rank: str


# The order matters for nested launchers: torchrun and horovodrun are often started by srun or
# mpirun (horovodrun --mpi starts mpirun itself), never the other way round.
_KNOWN = (
    _Variables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    _Variables("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    _Variables("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    _Variables("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    _Variables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


_PREFIXES = (
    *("OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "SLURM_", "PBS_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE"),
    *("LOCAL_", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_", "HOROVOD_HOSTNAME"),
    *("HOROVOD_GLOO_", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_ELASTIC", "HOROVOD_TIMELINE"),
)


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables without those of the launcher that started this process, for a run of its own.

    Settings of Horovod stay, such as ``HOROVOD_FUSION_THRESHOLD``.
    """
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def detect(environ: Mapping[str, str] = os.environ) -> Launch:
    """Detect the launcher that started this process.

    Args:
        environ: the environment variables of the process.

    Returns:
        The launcher and the rank of this process; ``single`` if no launcher is recognised.

    Raises:
        ConfigError: the variables of a launcher contradict each other.

    torchrun, or a script that sets its variables (``RANK``, ``WORLD_SIZE``), comes before
    horovodrun, mpirun (Open MPI's variables, or PMI's as MPICH and Intel MPI set them) and srun.
    A batch script's own process, which Slurm also gives a ``SLURM_PROCID``, is no rank: only a job
    step of several tasks counts, and its PMI variables do not make it an mpirun.
    """
    return next(_recognised(environ), Launch("single", 0, 1, 0))


def tell_torchrun(line: str) -> None:
    """Write the line about a failure to the file that torchrun shows in its summary of this rank; never raises.

    The file, ``TORCHELASTIC_ERROR_FILE``, has the layout that torch's ``ErrorHandler.record_exception`` writes
    (torch/distributed/elastic/multiprocessing/errors/error_handler.py), without a stack.  The first line stays.

    Args:
        line: the message.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        import json  # imported here: `--help` must be fast

        message = {"message": line, "extraInfo": {"timestamp": str(int(time.time()))}}
        with contextlib.suppress(OSError, ValueError), open(path, "x", encoding="utf-8") as file:
            json.dump({"message": message}, file)


def slurm_rendezvous(environ: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Returns host and port of the rendezvous of a Slurm job step: the first node, and a port derived from the step.

    Returns:
        Host name of the step's first node, where rank 0 runs, and a port from 20000 to 29999 that
        depends on the job and step alone.

    Raises:
        ConfigError: the process is in no job step.
    """
    try:
        nodes = environ["SLURM_STEP_NODELIST"]
        key = _number(environ, "SLURM_JOB_ID") * 31 + _number(environ, "SLURM_STEP_ID")
    except KeyError as error:
        raise ConfigError(
            f"environment variable {error} is not set",
            hint="start the ranks with srun, or set MASTER_ADDR and MASTER_PORT",
        ) from None
    # "gpu[003-007,012]n1,login2": the first entry, and of each bracket the first number.
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    host = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group() if first else nodes)
    return host, 20000 + key % 10000


def _recognised(environ: Mapping[str, str]) -> Iterator[Launch]:
    for names in _KNOWN:
        if names.rank not in environ or names.world_size not in environ:
            continue
        if names.rank == "PMI_RANK" and "SLURM_STEP_NUM_TASKS" in environ:
            continue  # srun --mpi=pmi2 sets PMI's variables, too
        launch = Launch(
            names.launcher,
            _number(environ, names.rank),
            _number(environ, names.world_size),
            _number(environ, names.local_rank),
        )
        if launch.rank >= launch.world_size:
            raise ConfigError(
                f"{names.rank}={launch.rank} is not below {names.world_size}={launch.world_size}",
                hint=f"unset both variables, or start the ranks with {names.launcher}",
            )
        if names.launcher == "srun" and launch.world_size == 1:
            continue
        yield launch


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "0")
    if not text.strip().isdecimal() or len(text) > 18:
        raise ConfigError(
            f"environment variable {name}={text!r} is not a number", hint=f"unset {name}, or set it to a number"
        )
    return int(text)
