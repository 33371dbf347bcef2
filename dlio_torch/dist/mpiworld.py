"""Imports mpi4py without initialising MPI, and describes the MPI library that mpi4py loads.

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
    """Returns name and version of the MPI library."""
    return " ".join(MPI.Get_library_version().splitlines()[0].split()).rstrip("\x00")


def io_world(comm: Communicator, user: str) -> Any:
    """Returns ``MPI_COMM_WORLD`` after checking that it has the ranks of the communicator ``comm``.

    Args:
        comm: communicator of this run.
        user: option or function that needs MPI, for the message.

    Raises:
        ConfigError: the ranks do not communicate over MPI.
        MissingPackageError: mpi4py loads another MPI than Horovod.
    """
    if comm.name != "mpi" and (comm.name, comm.detail) != ("horovod", "mpi"):
        raise ConfigError(
            f"{user} needs ranks that communicate over MPI, but the ranks of this run use {comm.name} ({comm.detail})",
            hint=(
                "set dist.backend=mpi, and start several ranks with mpiexec -n <n> python -m dlio_torch (a single "
                "rank needs no mpiexec)"
            ),
        )
    if not MPI.Is_initialized() or MPI.COMM_WORLD.size != comm.world_size:
        raise MissingPackageError(
            f"{user}: mpi4py loads {version_line()}, but Horovod uses another MPI",
            hint=(
                "build mpi4py with the mpicc of Horovod's MPI (pip install --no-binary mpi4py mpi4py), or set "
                "dist.backend=mpi"
            ),
        )
    if comm.name == "horovod" and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ConfigError(
            f"{user}: Horovod's background thread and the training thread would call MPI at the same time, and "
            "this MPI was initialised without MPI_THREAD_MULTIPLE",
            hint="set dist.backend=mpi, or set the environment variable HOROVOD_MPI_THREADS_DISABLE=0",
        )
    return MPI.COMM_WORLD
