"""Batches: named tensors on the memory that readers filled, so that no collation copy is needed.

A reader fills a :class:`BatchBuffer`; :meth:`BatchBuffer.finish` gives the :data:`Batch`.  Arrays of
fixed shape are allocated once for the whole batch and read in place.  Arrays of variable length
are concatenated along their first axis, with the rows of each sample beside them under
``<name>:lengths``.

torch is imported where tensors are made: generating data and planning a run do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Batch = dict[str, "torch.Tensor"]
Sample = dict[str, npt.NDArray[np.generic]]
Allocate = Callable[[tuple[int, ...], np.dtype[np.generic]], "tuple[npt.NDArray[np.generic], torch.Tensor]"]
"""Gives memory for an array of a shape and type, as an array and as a tensor of the same memory."""

INDEX = "index"
LENGTHS = ":lengths"


def is_reserved(name: str) -> bool:
    """Whether no array of a sample may have this name, since the tool adds entries of such names to a batch."""
    return name == INDEX or name.endswith(LENGTHS)


@dataclass(frozen=True)
class ArraySpec:
    """One array of a sample.

    Attributes:
        name: key of the array in a batch.
        dtype: element type; a structured type reaches torch as ``uint8`` with a last axis of its item size.
        shape: shape of one sample, or of one row if ``variable``.
        variable: the number of rows differs from sample to sample.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    variable: bool = False


def as_tensor(array: npt.NDArray[np.generic]) -> torch.Tensor:
    """Makes a tensor on the same memory; structured records become bytes because torch has no record type."""
    import torch

    if array.dtype.fields is not None:
        array = array.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
    return torch.from_numpy(array)


def concatenate(pieces: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
    """Concatenates arrays along the first axis like ``numpy.concatenate``, but keeps padding of structured types.

    NumPy's own gives a packed type, which moves every byte and no longer matches the file's.
    """
    if len(pieces) == 1:
        return pieces[0]
    dtype = pieces[0].dtype
    if dtype.fields is None:
        return np.concatenate(pieces)
    opaque = np.dtype((np.void, dtype.itemsize))
    return np.concatenate([piece.view(opaque) for piece in pieces]).view(dtype)


class BatchBuffer:
    """Memory that readers fill for one batch.

    Args:
        specs: arrays of a sample.
        indices: index in the data set of each sample of the batch.
        allocate: gives the memory of arrays of fixed shape; ``None``: memory of this process.
    """

    def __init__(self, specs: Sequence[ArraySpec], indices: Sequence[int], allocate: Allocate | None = None) -> None:
        self.indices = np.array(indices, dtype=np.int64)
        self.fixed: dict[str, npt.NDArray[np.generic]] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        for spec in specs:
            shape = (len(indices), *spec.shape)
            if allocate is not None and not spec.variable:
                self.fixed[spec.name], self._tensors[spec.name] = allocate(shape, spec.dtype)
            elif not spec.variable:
                self.fixed[spec.name] = np.empty(shape, spec.dtype)
        self._pieces: dict[str, list[npt.NDArray[np.generic] | None]] = {
            spec.name: [None] * len(indices) for spec in specs if spec.variable
        }

    def put(self, name: str, position: int, rows: npt.NDArray[np.generic]) -> None:
        """Store the rows of a variable-length array of the sample at ``position``, without a copy."""
        self._pieces[name][position] = rows

    def finish(self) -> Batch:
        """Returns the tensors of the batch; ``index`` holds the sample numbers.

        Raises:
            KeyError: a reader left out a variable-length array of a sample.
        """
        import torch

        batch: Batch = {INDEX: torch.from_numpy(self.indices)}
        for name, array in self.fixed.items():
            batch[name] = self._tensors[name] if name in self._tensors else as_tensor(array)
        for name, pieces in self._pieces.items():
            present = [piece for piece in pieces if piece is not None]
            if len(present) != len(pieces):
                raise KeyError(
                    f"array {name}: {len(pieces) - len(present)} of {len(pieces)} samples of the batch were not read"
                )
            batch[name] = as_tensor(concatenate(present))
            batch[name + LENGTHS] = torch.tensor([len(piece) for piece in present], dtype=torch.int64)
        return batch


def collated(
    specs: Sequence[ArraySpec], records: Sequence[tuple[int, Sample]], allocate: Allocate | None = None
) -> Batch:
    """Makes a batch of samples that lie in separate memory, by copying them one after another.

    Args:
        specs: arrays of a sample.
        records: the samples of the batch, each with its index.
        allocate: see :class:`BatchBuffer`.
    """
    buffer = BatchBuffer(specs, [number for number, _ in records], allocate)
    for spec in specs:
        if spec.variable:
            for place, (_, sample) in enumerate(records):
                buffer.put(spec.name, place, sample[spec.name])
        else:
            into = buffer.fixed[spec.name]
            for place, (_, sample) in enumerate(records):
                into[place] = sample[spec.name]
    return buffer.finish()


def batch_bytes(batch: Batch) -> int:
    """Bytes of the tensors of a batch, without the index and the lengths that the tool adds."""
    return sum(tensor.numel() * tensor.element_size() for tensor in batch_tensors(batch))


def batch_tensors(batch: Batch) -> Iterator[torch.Tensor]:
    """The tensors that a model would get, without the index and the lengths that the tool adds."""
    return (tensor for name, tensor in batch.items() if not is_reserved(name))


def samples_of(batch: Batch, specs: Sequence[ArraySpec]) -> Iterator[tuple[int, Sample]]:
    """Each sample of a batch with its index, as NumPy arrays of the specified types (no copy)."""
    starts: dict[str, npt.NDArray[np.int64]] = {}
    for spec in specs:
        if spec.variable:
            starts[spec.name] = np.concatenate([[0], np.cumsum(batch[spec.name + LENGTHS].numpy())])
    for position, index in enumerate(batch[INDEX].tolist()):
        sample: Sample = {}
        for spec in specs:
            array = batch[spec.name].numpy()
            if spec.dtype.fields is not None:
                array = array.view(spec.dtype).reshape(array.shape[:-1])
            if spec.variable:
                first, last = starts[spec.name][position : position + 2]
                sample[spec.name] = array[first:last]
            else:
                sample[spec.name] = array[position]
        yield index, sample
