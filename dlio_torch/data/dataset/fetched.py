"""The result of an engine for one step: a batch, or the error that took its place."""

from __future__ import annotations

from typing import Any, NamedTuple

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import Batch, as_tensor, is_reserved


class Fetched(NamedTuple):
    """Batch or error that an engine transfers from the dataset to the trainer.

    A named tuple, because the pinning of torch and torchdata keeps its type and pins the tensors in it.  An error
    travels as a value: torch would turn one that is raised in a worker into a text of many lines.

    Between processes each tensor has shared memory of its own, and a connection that transfers its descriptor.  What
    the tool adds to a batch travels as an array beside them: an application does not pay for it.

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

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = {name: tensor.numpy() if is_reserved(name) else tensor for name, tensor in self.batch.items()}
        return _received, (arrays, self.number, self.error)


def _received(arrays: dict[str, Any], number: int, error: DlioError | None) -> Fetched:
    """A result in the process that gets it."""
    batch = {name: as_tensor(array) if is_reserved(name) else array for name, array in arrays.items()}
    return Fetched(batch, number, error)


def failed(error: DlioError) -> Fetched:
    """Makes a result that carries an error instead of a batch."""
    return Fetched({}, error=error)
