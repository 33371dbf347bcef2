"""Map-style dataset that is read into memory before training."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from dlio_torch.data.dataset.batch_memory import batch_allocator
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.formats.core.batch import INDEX, LENGTHS, Batch, batch_bytes, is_reserved
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class InMemoryDataset(Dataset[Batch]):
    """All samples that a rank will request, read as one batch before training.

    Fixed-length arrays are read in place.  The rows of a variable-length array are put together when all
    are there, which takes their size once more for that moment.

    Batches are gathered by NumPy, in the thread that asks: torch's indexing would share the work out to a pool of
    threads in every thread that loads, which wait for each other where cores are busy, and take them from training.

    Args:
        source: where they are read from; its ``unit`` says in which pieces.
        wanted: numbers of the samples in ascending order, which is that of reading.
        recorder: takes spans ``collate``.
    """

    def __init__(self, source: SampleDataset, wanted: Sequence[int], recorder: Recorder = NULL) -> None:
        self._length = len(source)
        self._recorder = recorder
        self._all = source.__getitems__(wanted)  # tensors: workers that begin again share their memory
        # After each sample, the rows so far of a variable-length array.
        self._ends = {
            name.removesuffix(LENGTHS): np.cumsum(lengths.numpy())
            for name, lengths in self._all.items()
            if name.endswith(LENGTHS)
        }

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        """A batch of one sample."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The batch of the samples ``indices``, copied from memory.

        Raises:
            KeyError: a sample was not among those wanted.
        """
        began = time.perf_counter_ns()
        arrays = {name: tensor.numpy() for name, tensor in self._all.items()}  # the same memory
        numbers, wanted = arrays[INDEX], np.asarray(indices)
        positions = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        if not np.array_equal(numbers[positions], wanted):
            raise KeyError(f"the requested samples {indices} are not all in memory")
        batch: Batch = {}
        allocate = batch_allocator()
        for name, array in arrays.items():
            ends = self._ends.get(name)
            if ends is None:
                if allocate is None or is_reserved(name):
                    batch[name] = torch.from_numpy(np.take(array, positions, axis=0))
                else:
                    into, batch[name] = allocate((len(positions), *array.shape[1:]), array.dtype)
                    np.take(array, positions, axis=0, out=into, mode="clip")  # other modes copy it a second time
                continue
            last = ends[positions]
            first = last - arrays[name + LENGTHS][positions]
            rows = [array[i:j] for i, j in zip(first.tolist(), last.tolist(), strict=True)]
            batch[name] = torch.from_numpy(np.concatenate(rows))
        self._recorder.add("collate", began, time.perf_counter_ns(), bytes=batch_bytes(batch))
        return batch

    def nbytes(self) -> int:
        """Memory of the samples in bytes."""
        return batch_bytes(self._all)
