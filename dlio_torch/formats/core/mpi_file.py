"""Contract of files that several ranks open collectively and a format's library reads by MPI-IO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.layout import Ints


class Ranks(Protocol):
    """The ranks that read a shared file, and their MPI-IO settings.

    Attributes:
        comm: mpi4py's communicator of those that open it together.
        info: mpi4py's hints.
        collective: whether they make the read calls together, too.
    """

    @property
    def comm(self) -> Any: ...

    @property
    def info(self) -> Any: ...

    @property
    def collective(self) -> bool: ...


class SharedFile(ABC):
    """File that several ranks opened collectively.

    Attributes:
        num_samples: samples in it.
    """

    num_samples: int

    @abstractmethod
    def read(self, rows: Ints, positions: Ints, buffer: BatchBuffer) -> int:
        """Read samples; every rank must make the same library calls, even if it needs no sample.

        Args:
            rows: positions in the file; int64.
            positions: of each, its position in the batch.
            buffer: receives them.

        Returns:
            Bytes that were asked for.

        Raises:
            DataError: the file does not hold them, or its bytes are damaged.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file collectively with the other ranks."""
