"""Errors of ``torch.distributed.checkpoint`` as errors of this program."""

from __future__ import annotations

from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException

from dlio_torch.checkpoint.write_errors import cannot_write
from dlio_torch.errors import DlioError, RunFailed

_PROCESS_ENDED = "background process is dead"  # in PyTorch's words, as a RuntimeError
_CONNECTION = "gloo/transport"  # in Gloo's words, likewise


def save_error(folder: Path, size: int, error: BaseException, rank: int) -> DlioError:
    """The error of a save that failed.

    Args:
        folder: of the checkpoint.
        size: bytes that this rank had to write.
        error: what the library raised.
        rank: number of this rank in the group of the save.
    """
    problem = cause(error, rank)
    if _PROCESS_ENDED in str(problem):
        return RunFailed(
            f"checkpoint file {folder} cannot be written: the process that writes it was killed",
            hint="look for a lack of memory (dmesg), or set checkpoint.async_save=thread",
        )
    if _CONNECTION in str(problem):
        return RunFailed(
            f"checkpoint file {folder} cannot be written: the connection to another rank's save broke",
            hint="that rank was killed, or its process for saves: look for a lack of memory (dmesg) on its machine",
        )
    return cannot_write(folder, size, problem if isinstance(problem, Exception) else RuntimeError(str(problem)))


def cause(error: BaseException, rank: int) -> BaseException:
    """The error behind what the library raised: this rank's, or that of the first rank that failed.

    The library gathers the errors of all ranks, and raises the same on each of them.

    Args:
        error: what was raised.
        rank: number of this rank in the group of the save or load.
    """
    if not isinstance(error, CheckpointException) or not error.failures:
        return error
    failures = error.failures
    return failures.get(rank, failures[min(failures)])[0]
