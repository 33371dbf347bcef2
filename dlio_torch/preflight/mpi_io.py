"""Preflight check: ranks can read the data by MPI-IO, if ``access.io`` selects MPI-IO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.config.schema import Config
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.registry import check_mpi4py
from dlio_torch.formats.core.format import Format

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting


def check_mpi_io(config: Config, fmt: Format) -> None:
    """Refuse ``access.io`` other than ``posix`` for a format, or a Python environment, without MPI-IO.

    Raises:
        PreconditionError: the format has no layout for MPI-IO, or mpi4py is missing or finds no MPI.
    """
    if config.access.io != "posix":
        fmt.check_shared()
        check_mpi4py(f"access.io={config.access.io}")


def connect_mpi_ranks(config: Config, fmt: Format, comm: Communicator) -> Meeting | None:
    """Connect the ranks that read by MPI-IO; ``None`` with ``access.io=posix``.  All ranks call this.

    Raises:
        PreconditionError: see :func:`check_mpi_io`.
    """
    access = config.access
    if access.io == "posix":
        return None
    check_mpi_io(config, fmt)
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting, check_datatypes  # imports mpi4py

    if fmt.mpi_io == "extents":
        check_datatypes(access.io)
    return Meeting.of(comm, access.io, access.mpi_hints)
