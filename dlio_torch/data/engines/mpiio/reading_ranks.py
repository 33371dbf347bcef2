"""Group of ranks that read by MPI-IO, with their MPI-IO hints and request counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dlio_torch.dist.base import Communicator
from dlio_torch.dist.mpiworld import MPI, io_world, version_line
from dlio_torch.dist.ranked import RankedCommunicator
from dlio_torch.errors import DataError, MissingPackageError

_NO_LARGE_TYPES = ("MPICH", (4, 0))
"""MPI version whose MPI-IO aborts for datatypes made by MPI-4 functions, which mpi4py 4 uses."""


def check_datatypes(io: str) -> None:
    """Check that the MPI library can read scattered extents.

    Raises:
        MissingPackageError: it cannot.
    """
    name, version = MPI.get_vendor()
    if (name, version[:2]) == _NO_LARGE_TYPES:
        raise MissingPackageError(
            f"access.io={io}: {version_line()} aborts in MPI-IO with the datatypes that mpi4py 4 makes",
            hint="use MPICH 4.1 or later or Open MPI, or set dataset.format=hdf5, which uses other datatypes",
        )


class Closable(Protocol):
    """Protocol of an open file whose close is a collective call."""

    def close(self) -> None:
        """Close the file."""


@dataclass
class Figures:
    """Counters of one rank's MPI-IO requests, which are sent to rank 0.

    Attributes:
        io: ``independent`` or ``collective``.
        library: the MPI.
        calls: read calls.
        empty_calls: those of them in which this rank asked for nothing and others may have.
        asked_bytes: bytes that this rank asked for.
        hints: those in force, as MPI names them for the first file (OMPIO may name none); ``None`` before there is one.
    """

    io: str
    library: str
    calls: int = 0
    empty_calls: int = 0
    asked_bytes: int = 0
    hints: dict[str, str] | None = None

    def count(self, size: int) -> None:
        """Count a call and its requested bytes."""
        self.calls += 1
        self.empty_calls += size == 0
        self.asked_bytes += size


@dataclass(frozen=True)
class Meeting:
    """Ranks that read together, and their MPI-IO settings.

    Attributes:
        comm: mpi4py's communicator of the ranks that call together; for independent calls that of this one alone.
        info: mpi4py's hints.
        collective: whether all ranks make the read calls together.
        figures: what was asked for.
        opened: open files in the order of opening.
        ranks: watches what the ranks do together; ``None``: nobody waits for another one.
        others: meetings of this rank by itself, whose files are closed with the others.
    """

    comm: Any
    info: Any
    collective: bool
    figures: Figures
    opened: dict[int, Closable] = field(default_factory=dict)
    ranks: RankedCommunicator | None = None
    others: list[Meeting] = field(default_factory=list)

    @classmethod
    def of(cls, comm: Communicator, io: str, hints: Sequence[str]) -> Meeting:
        """Creates the group of a run's ranks.

        Args:
            comm: the ranks.
            io: ``access.io``.
            hints: ``access.mpi_hints``.

        Raises:
            ConfigError: the ranks do not talk over MPI.
            MissingPackageError: mpi4py is of another MPI.
        """
        world = io_world(comm, f"access.io={io}")
        info = MPI.Info.Create()
        for hint in hints:
            name, _, value = hint.partition("=")
            info.Set(name.strip(), value.strip())
        collective = io == "collective"
        ranks = comm if isinstance(comm, RankedCommunicator) else None
        return cls(world if collective else MPI.COMM_SELF, info, collective, Figures(io, version_line()), {}, ranks)

    def alone(self) -> Meeting:
        """Creates a group that consists of this rank alone."""
        meeting = replace(self, comm=MPI.COMM_SELF, ranks=None, opened={}, others=[])
        self.others.append(meeting)
        return meeting

    def watch(self, call: str) -> AbstractContextManager[None]:
        """Context of a collective call; ends the run if a rank does not join within ``dist.timeout_s``."""
        if self.ranks is None or not self.collective:
            return nullcontext()
        return self.ranks.watched_collective(call)

    def file(self, path: Path) -> Any:
        """Opens mpi4py's file collectively on all ranks of ``comm``.

        Raises:
            DataError: MPI does not open it.
        """
        with self.watch("opening a file"), refusing(path):
            file = MPI.File.Open(self.comm, str(path), MPI.MODE_RDONLY, self.info)
            if self.figures.hints is None:
                given = file.Get_info()
                keys = [given.Get_nthkey(number) for number in range(given.Get_nkeys())]
                self.figures.hints = {key: given.Get(key) or "" for key in keys}
                given.Free()
        return file

    def keep(self, file: Closable) -> None:
        """Register an open file, so that :meth:`close` closes it."""
        self.opened[id(file)] = file

    def drop(self, file: Closable) -> None:
        """Close a registered file now."""
        del self.opened[id(file)]
        with self.watch("closing a file"):
            file.close()

    def close(self) -> None:
        """Close all files in the same order on all ranks; must not be called after a failure, when it would hang."""
        for other in self.others:
            other.close()
        for file in list(self.opened.values()):
            self.drop(file)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn an MPI exception into the one-line error for the file.

    Raises:
        DataError: in its place.
    """
    try:
        yield
    except MPI.Exception as error:
        why = MPI.Get_error_string(error.Get_error_class())
        if error.Get_error_class() == MPI.ERR_NO_SUCH_FILE:
            raise DataError(f"{path} does not exist", hint="generate the data, or correct dataset.path") from error
        raise DataError(f"{path} cannot be read by MPI-IO: {why}", hint="check the file system") from error
