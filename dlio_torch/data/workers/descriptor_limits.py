"""Number of open files that a rank with loader workers needs, and the error for a limit that is too low."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.transfer_memory import TooManyFiles
from dlio_torch.syserrors import errno_of

EXIT_CODE = errno.EMFILE
"""Exit code of a worker that has no file descriptor left for sending a message."""

_QUEUE = 2  # the pipe through which all workers send
_TRANSFER = 3  # in a worker: a listening socket, a connection, a data file
_OTHERS = 16  # files of results, recordings and the interpreter, at most
_TEXTS = ("too many open files", "items of ancdata")  # of torch, and of a message that lost its descriptors


@dataclass(frozen=True)
class OpenFiles:
    """File descriptors that a trainer and each of its workers need.

    torch transfers each tensor of a batch by a descriptor of shared memory of its own.  A worker keeps it until the
    trainer has received the batch, and the trainer until the batch is used.  Forked workers inherit all descriptors
    of the trainer.

    Attributes:
        engine: ``loader.engine``.
        workers: worker processes.
        ahead: batches that a worker reads ahead.
        tensors: tensors of a batch; each has a descriptor.
        kept: most data files that a worker keeps open.
        before: descriptors that the trainer has open before it starts workers.
        of_a_worker: descriptors of the trainer for each worker.
    """

    engine: str
    workers: int
    ahead: int
    tensors: int
    kept: int
    before: int
    of_a_worker: int

    @classmethod
    def of(cls, config: LoaderConfig, of_a_worker: int, tensors: int) -> OpenFiles:
        """Computes the descriptors of a loader with these options; called in the trainer before workers are started.

        Args:
            config: the options of ``loader``.
            of_a_worker: descriptors of the trainer for each worker.
            tensors: tensors of a batch; each has a descriptor.
        """
        before = len(os.listdir("/proc/self/fd"))
        workers, kept = config.num_workers, config.max_open_files
        return cls(config.engine, workers, config.prefetched, tensors, kept, before, of_a_worker)

    @property
    def least(self) -> int:
        """Number of descriptors that the first batch needs."""
        if not self.workers:
            return self.before
        # A worker holds each tensor twice while it sends a batch.
        return self._started + 2 * self.tensors + _TRANSFER

    @property
    def most(self) -> int:
        """Number of descriptors that suffices for workers and trainer at any time."""
        trainer = (self.workers * self.ahead + 2) * self.tensors
        worker = (self.ahead + 2) * self.tensors + self.kept
        return self._started + max(trainer, worker) + _OTHERS

    @property
    def _started(self) -> int:
        return self.before + self.workers * self.of_a_worker + _QUEUE

    def error(self) -> TooManyFiles:
        """Returns the error for a limit that is too low."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        low = hard != resource.RLIM_INFINITY and hard < self.most
        administrator = f" (an administrator must raise the hard limit, {hard}, first)" if low else ""
        return TooManyFiles(
            f"loader.num_workers={self.workers} with loader.engine={self.engine}: too many open files: "
            f"up to {self.most} are needed, but the limit of a process is {soft} (ulimit -n)",
            hint=f"raise the limit with ulimit -n {self.most}{administrator}, or lower loader.num_workers",
        )

    def lacking(self) -> TooManyFiles | None:
        """The error if the limit is too low for the first batch; ``None`` if it suffices."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self.error() if self.workers and soft != resource.RLIM_INFINITY and soft < self.least else None


def is_too_many(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that a process has no file descriptor left."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).lower()
        if errno_of(cause) == errno.EMFILE or any(words in text for words in _TEXTS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
