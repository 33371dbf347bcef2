"""Errors of ``torch.distributed.checkpoint`` as errors of this program."""

from __future__ import annotations

from torch.distributed.checkpoint.api import CheckpointException


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
