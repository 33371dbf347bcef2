"""A format in memory that counts what is asked of it, and configurations around it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import AccessConfig, ComputeConfig, Config, DatasetConfig, LoaderConfig, TrainConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.assemble import Loaders, assemble
from dlio_torch.data.order.planning import plan_order
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import INDEX, ArraySpec, BatchBuffer, Sample, samples_of
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


@dataclass
class Seen:
    """What was asked of the format in this process."""

    opens: list[int] = field(default_factory=list)
    reads: list[tuple[int, int, int]] = field(default_factory=list)  # file, first, count
    open_now: int = 0
    most_open: int = 0


class CountingFormat(Format):
    """Samples of two numbers, or of a few rows; file f's are numbered as the manifest says."""

    name: ClassVar[str] = "counting"
    suffix: ClassVar[str] = ".none"
    needs_files: ClassVar[bool] = True

    def __init__(self, counts: Sequence[int], lengths: Sequence[int] | None = None, missing: int = -1) -> None:
        super().__init__(DatasetConfig(format="counting"), 0)
        self.first = [0, *accumulate(counts)]
        self.counts = list(counts)
        self.lengths = lengths
        self.missing = missing
        self.seen = Seen()
        self.counts_known = True  # without reading a whole file

    def specs(self) -> list[ArraySpec]:
        specs = [ArraySpec("x", np.dtype("f4"), (2,))]
        return specs if self.lengths is None else [*specs, ArraySpec("rows", np.dtype("i4"), (3,), variable=True)]

    def expected(self, sample: int) -> Sample:
        content: Sample = {"x": np.array([sample, sample + 0.5], "f4")}
        if self.lengths is not None:
            rows = np.arange(self.lengths[sample], dtype="i4")[:, None] + np.array([0, 1000, 1000 * sample], "i4")
            content["rows"] = rows
        return content

    def sample_bytes(self) -> float:
        return 8.0

    def stored_bytes(self) -> float:
        return 8.0

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        raise NotImplementedError

    def inspect(self, path: Path) -> FileInfo:
        return FileInfo(self.counts[_file(path)], {})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        if _file(path) == self.missing:
            raise DataError(f"{path} does not exist", hint="generate it")
        return _CountingReader(self, _file(path))

    def stream(self, reader: Reader) -> Iterator[Sample]:
        assert isinstance(reader, _CountingReader)
        for row in range(reader.count):
            buffer = BatchBuffer(self.specs(), [row])
            reader.read(row, 1, buffer, 0)
            yield from (sample for _, sample in samples_of(buffer.finish(), self.specs()))

    def manifest(self) -> Manifest:
        names = [f"{number}.none" for number in range(len(self.counts))]
        return Manifest("train", 0, FileCounts(self.counts), Path("nowhere"), names, self.suffix)


class _CountingReader(Reader):
    def __init__(self, fmt: CountingFormat, file: int) -> None:
        self.count = fmt.counts[file]
        self.num_samples = self.count if fmt.counts_known else None
        self._format, self._file, self._seen = fmt, file, fmt.seen
        self._seen.opens.append(file)
        self._seen.open_now += 1
        self._seen.most_open = max(self._seen.most_open, self._seen.open_now)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        self._seen.reads.append((self._file, first, count))
        for place in range(count):
            sample = self._format.expected(self._format.first[self._file] + first + place)
            buffer.fixed["x"][position + place] = sample["x"]
            if "rows" in sample:
                buffer.put("rows", position + place, sample["rows"])

    def close(self) -> None:
        self._seen.open_now -= 1


def _file(path: Path) -> int:
    return int(path.stem)


class NamingPreprocess:
    """Instead of CPU work, the names of the threads that would do it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def burn(self, samples: int) -> int:
        self.names.add(threading.current_thread().name)
        return 0


def configured(
    access: dict[str, Any], train: dict[str, Any], loader: dict[str, Any] | None = None, **top: Any
) -> Config:
    return Config(
        access=AccessConfig(**access),
        train=TrainConfig(**train),
        loader=LoaderConfig(**(loader or {})),
        compute=ComputeConfig(),
        verify=True,
        **top,
    )


@dataclass(frozen=True)
class PlannedLoaders(Loaders):
    """Loaders, and the order of training that they follow."""

    sampler: Any


def loaders(
    config: Config, fmt: CountingFormat, rank: int = 0, world_size: int = 1, **splits: Manifest
) -> PlannedLoaders:
    manifests = {"train": fmt.manifest(), **splits}
    order = plan_order(config, fmt, manifests, rank, world_size)
    return PlannedLoaders(**vars(assemble(config, fmt, manifests, order, NULL)), sampler=order.train)


def numbers(made: Loaders, epoch: int, steps: int | None = None) -> list[list[int]]:
    """Sample numbers of the batches that an epoch of training takes."""
    batches = made.train.epoch(epoch)
    taken = []
    for _ in range(len(made.train) if steps is None else steps):
        taken.append(next(batches)[INDEX].tolist())
        batches.read_on()
    return taken


def planned(made: PlannedLoaders, epochs: int) -> list[list[list[int]]]:
    return [list(made.sampler.batches(epoch)) for epoch in range(epochs)]


def flat(batches: Iterator[list[int]] | Sequence[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]
