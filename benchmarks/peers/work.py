"""The data that other loaders read: as :mod:`benchmarks.loading.work`, without this project's packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Start = Callable[[], Iterable[Any]]
SHARDS = 4


@dataclass(frozen=True)
class PeerWork:
    """One epoch of float32 samples.

    Attributes:
        size: bytes of a sample.
        batch: samples of a batch.
        samples: of the epoch.
        shuffled: in random order, else as they lie.
        cold: the files are taken out of the page cache before each epoch, so that they must not stay mapped.
    """

    size: int
    batch: int
    samples: int
    shuffled: bool
    cold: bool


def each_sample(raw: Path, work: PeerWork) -> Iterator[Any]:
    """Yields the samples of the raw file as float32 arrays."""
    with raw.open("rb") as file:
        for _ in range(work.samples):
            yield np.frombuffer(file.read(work.size), np.float32)


def order(work: PeerWork) -> list[list[int]]:
    """Yields the sample numbers of each batch."""
    numbers = np.random.default_rng(1).permutation(work.samples) if work.shuffled else np.arange(work.samples)
    return [part.tolist() for part in np.split(numbers, range(work.batch, work.samples, work.batch))]


def content(batch: Any) -> torch.Tensor:
    """The samples of a batch, without the container that a loader uses."""
    while isinstance(batch, list | tuple | Mapping):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return torch.as_tensor(batch).contiguous()


def checksum(data: torch.Tensor) -> int:
    """Sum of all words modulo 2**64, which does not depend on their order."""
    return int(data.reshape(-1).view(torch.int32).sum(dtype=torch.int64))
