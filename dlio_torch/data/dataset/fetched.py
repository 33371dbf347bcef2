"""The result of an engine for one step: a batch, or the error that took its place."""

from __future__ import annotations

from typing import NamedTuple

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import Batch


class Fetched(NamedTuple):
    """Batch or error that an engine transfers from the dataset to the trainer.

    A named tuple, because the pinning of torch and torchdata keeps its type and pins the tensors in it.  An error
    travels as a value: torch would turn one that is raised in a worker into a text of many lines.

    Attributes:
        batch: the tensors by name; empty where there is an error.
        number: of the batch, unique in the run (:mod:`dlio_torch.data.dataset.provenance`); -1: none is recorded.
        error: why there is no batch.
    """

    batch: Batch
    number: int = -1
    error: DlioError | None = None

    def opened(self) -> Batch:
        """Returns the batch, or raises the error in its place.

        Raises:
            DlioError: there is an error in its place.
        """
        if self.error is not None:
            raise self.error
        return self.batch


def failed(error: DlioError) -> Fetched:
    """Makes a result that carries an error instead of a batch."""
    return Fetched({}, error=error)
