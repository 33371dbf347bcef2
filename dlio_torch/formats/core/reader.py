"""Contract of readers: base class ``Reader``, an open file of a format."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dlio_torch.formats.core.batch import BatchBuffer


class Reader(ABC):
    """Open file of a data set; used by one thread at a time, unless the format lets threads share it.

    Attributes:
        num_samples: samples in the file, as its own tables say; ``None`` if only reading it all would tell.
    """

    num_samples: int | None

    @abstractmethod
    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Read ``count`` consecutive samples of this file into ``buffer`` from ``position`` on.

        Makes the library calls that the application makes for such a run of samples; the caller
        decides (``access.unit``) whether runs are longer than one.

        Args:
            first: position of the first sample inside the file.
            count: samples to read.
            buffer: receives sample ``first + i`` at position ``position + i``.
            position: first position in the buffer.

        Raises:
            DataError: the file does not hold these samples, or its bytes are damaged.
        """

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027 - most samples are the same in each epoch
        """Choose the epoch (from 0) of the next reads, for a format whose samples depend on it; at first it is 0."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; the reader must not be used afterwards."""
