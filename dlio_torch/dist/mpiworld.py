"""mpi4py, imported without initialising MPI, and the MPI library that it loads.

MPI is initialised and finalised by :class:`dlio_torch.dist.mpi.MpiCommunicator`, not by importing mpi4py: a
loader worker, or a run without MPI, imports h5py, and a parallel h5py imports mpi4py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mpi4py

from dlio_torch.errors import ConfigError, MissingPackageError

if TYPE_CHECKING:
    from dlio_torch.dist.base import Communicator

mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402 - after the settings that it reads

__all__ = ["MPI", "io_world", "version_line"]


def version_line() -> str:
    """Name and version of the MPI library."""
    return " ".join(MPI.Get_library_version().splitlines()[0].split()).rstrip("\x00")


def io_world(comm: Communicator, user: str) -> Any:
    """``MPI_COMM_WORLD``, checked to have the ranks of a communicator.

    Args:
        comm: communicator of this run.
        user: option or function that needs MPI, for the message.

    Raises:
        ConfigError: the ranks do not communicate over MPI.
        MissingPackageError: mpi4py loads another MPI than Horovod.
    """
    if comm.name != "mpi" and (comm.name, comm.detail) != ("horovod", "mpi"):
        raise ConfigError(
            f"{user} needs ranks that communicate over MPI, and these use {comm.name} ({comm.detail})",
            hint="start with mpiexec -n <n> python -m dlio_torch, and set dist.backend=mpi (one process can, too)",
        )
    if not MPI.Is_initialized() or MPI.COMM_WORLD.size != comm.world_size:
        raise MissingPackageError(
            f"{user}: mpi4py loads {version_line()}, which is another MPI than Horovod's",
            hint="build mpi4py with that MPI's mpicc (pip install --no-binary mpi4py mpi4py), or set dist.backend=mpi",
        )
    if comm.name == "horovod" and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            f"{user}: Horovod's own thread and the training's would call MPI at once, which this MPI does not allow",
            hint="set dist.backend=mpi, or start with HOROVOD_MPI_THREADS_DISABLE=0",
        )
    return MPI.COMM_WORLD
