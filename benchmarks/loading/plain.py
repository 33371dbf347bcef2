"""Loaders as a PyTorch user writes them: a Dataset over the layout's library, driven by torch's loaders."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import torchdata.nodes as tn
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness.tables import Missing
from benchmarks.loading.work import THREADS, Way, Work, epoch

DATALOADER = "torch DataLoader, 2 workers"


class Samples(Dataset[torch.Tensor]):
    """Dataset that opens its file with the first sample, in the process that requests it; subclasses read."""

    def __init__(self, path: Path, work: Work) -> None:
        self.path, self.work = path, work
        self._data: Any = None

    def __len__(self) -> int:
        return self.work.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._data is None:
            self._data = self.open()
        return torch.from_numpy(self.take(self._data, index))

    def open(self) -> Any:
        raise NotImplementedError

    def take(self, data: Any, index: int) -> Any:
        return data[index]


class Raw(Samples):
    """Reads one sample per call from a file that contains only samples."""

    def open(self) -> int:
        return os.open(self.path, os.O_RDONLY)

    def take(self, data: int, index: int) -> Any:
        sample = np.empty(self.work.size // 4, np.float32)
        os.preadv(data, [memoryview(sample)], index * self.work.size)
        return sample

    def __del__(self) -> None:
        if self._data is not None:
            os.close(self._data)


class Npy(Samples):
    """Copies samples out of a memory-mapped array."""

    def open(self) -> Any:
        return np.load(self.path, mmap_mode="r")

    def take(self, data: Any, index: int) -> Any:
        return np.array(data[index])


class Npz(Samples):
    """Copies samples out of a member that numpy reads as a whole and keeps."""

    def open(self) -> Any:
        with np.load(self.path) as archive:
            return archive["data"]


class Hdf5(Samples):
    """Reads samples as slices of an HDF5 array."""

    def open(self) -> Any:
        return h5py.File(self.path, "r")["data"]


LIBRARIES: dict[str, tuple[str, type[Samples]]] = {
    "npy": ("numpy, mapped", Npy),
    "npz": ("numpy, member whole", Npz),
    "binary": ("os.preadv", Raw),
    "hdf5": ("h5py", Hdf5),
    "hdf5_chunks": ("h5py", Hdf5),
    "hdf5_gzip": ("h5py", Hdf5),
}
"""By layout: the library, and the Dataset; for TFRecord PyTorch has none."""


def ways(layout: str, path: Path, work: Work) -> Iterator[Way | Missing]:
    """A loop, DataLoader without and with workers, and torchdata.nodes over the same Dataset."""
    if layout not in LIBRARIES:
        yield Missing(f"library loop over {layout}", "PyTorch has no reader of it")
        return
    library, kind = LIBRARIES[layout]

    def made() -> Samples:
        return kind(path, work)

    yield _way(f"loop over {library}", lambda: _loop(made()), path, work)
    yield _way("torch DataLoader", lambda: DataLoader(made(), batch_sampler=work.sampler()), path, work)
    yield _with_workers(made, path, work)
    yield _way("torchdata.nodes, 2 threads", lambda: _nodes(made()), path, work)


def _way(name: str, start: Callable[[], Iterable[Any]], path: Path, work: Work) -> Way:
    return Way(name, lambda: epoch(start, work), [path])


def _with_workers(made: Callable[[], Samples], path: Path, work: Work) -> Way:
    """DataLoader with persistent workers; for cold data with new ones, since the old may have the file mapped."""

    def loader() -> DataLoader[torch.Tensor]:
        return DataLoader(
            made(), batch_sampler=work.sampler(), num_workers=2, persistent_workers=not work.cold,
            multiprocessing_context="fork",
        )  # fmt: skip

    if work.cold:
        return _way(DATALOADER, loader, path, work)
    stays = [loader()]
    return Way(DATALOADER, lambda: epoch(lambda: stays[0], work), [path], stays.clear)


def _loop(dataset: Samples) -> Iterator[torch.Tensor]:
    for batch in dataset.work.sampler():
        yield torch.stack([dataset[index] for index in batch])


def _nodes(dataset: Samples) -> Iterable[Any]:
    def read(indices: list[int]) -> torch.Tensor:
        return torch.stack([dataset[index] for index in indices])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mapper = tn.ParallelMapper(
            tn.IterableWrapper(dataset.work.sampler()), read, num_workers=THREADS, method="thread"
        )
        return tn.Loader(tn.Prefetcher(mapper, 2))
