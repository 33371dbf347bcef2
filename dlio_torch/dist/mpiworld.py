"""mpi4py, imported the way this package needs it, and the MPI that it loads.

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


def io_world(comm: Communicator, what: str) -> Any:
    """``MPI_COMM_WORLD``, where its ranks are those of a communicator.

    Args:
        comm: of this run.
        what: needs it, for the message.

    Raises:
        ConfigError: the ranks do not talk over MPI.
        MissingPackageError: mpi4py is of another MPI than Horovod's.
    """
    if comm.name != "mpi" and (comm.name, comm.detail) != ("horovod", "mpi"):
        raise ConfigError(
            f"{what} needs ranks that talk over MPI, and these talk by {comm.name} ({comm.detail})",
            hint="start with mpiexec -n <n> python -m dlio_torch, and set dist.backend=mpi (one process can, too)",
        )
    if not MPI.Is_initialized() or MPI.COMM_WORLD.size != comm.world_size:
        raise MissingPackageError(
            f"{what}: mpi4py loads {version_line()}, which is another MPI than Horovod's",
            hint="build mpi4py with that MPI's mpicc (pip install --no-binary mpi4py mpi4py), or set dist.backend=mpi",
        )
    if comm.name == "horovod" and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            f"{what}: Horovod's own thread and the training's would call MPI at once, which this MPI does not allow",
            hint="set dist.backend=mpi, or start with HOROVOD_MPI_THREADS_DISABLE=0",
        )
    return MPI.COMM_WORLD
