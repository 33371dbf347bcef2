"""Small data sets for tests: a format whose reading a test can delay, a whole data set, and ranks as threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.dist.base import FailureHook, GradientReducer, SingleCommunicator
from dlio_torch.errors import DataError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.batch import ArraySpec, Batch, BatchBuffer, Sample
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

WORDS = 4


class RawFormat(Format):
    """Samples of four int64; a sample in ``waits`` takes so many seconds to read.

    Attributes:
        waits: seconds by number of the sample in the data set.
        write_s: seconds that each sample takes to write.
        log: file that gets a byte for each read that is done, in any process.
    """

    name: ClassVar[str] = "raw"
    suffix: ClassVar[str] = ".raw"

    def __init__(self, config: DatasetConfig | None = None, seed: int = 1) -> None:
        super().__init__(config or DatasetConfig(), seed)
        self.waits: dict[int, float] = {}
        self.write_s = 0.0
        self.log: Path | None = None

    def specs(self) -> list[ArraySpec]:
        return [ArraySpec("data", np.dtype(np.int64), (WORDS,))]

    def expected(self, sample: int) -> Sample:
        return {"data": np.full(WORDS, self.seed * 1000003 + sample, np.int64)}

    def sample_bytes(self) -> float:
        return 8.0 * WORDS

    def stored_bytes(self) -> float:
        return 8.0 * WORDS

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with path.open("wb", buffering=0) as file:
            for row in pool.map(self.expected, range(first_sample, first_sample + num_samples)):
                file.write(row["data"].tobytes())
                time.sleep(self.write_s)

    def inspect(self, path: Path) -> FileInfo:
        size = path.stat().st_size
        if size % (8 * WORDS):
            raise DataError(f"{path} has {size} bytes")
        return FileInfo(size // (8 * WORDS), {"bytes": size})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return _RawReader(path, self)


class _RawReader(Reader):
    def __init__(self, path: Path, fmt: RawFormat) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise open_error(path, error) from error
        self.num_samples = fmt.inspect(path).num_samples
        self._fmt = fmt

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for number in buffer.indices[position : position + count].tolist():
            time.sleep(self._fmt.waits.get(number, 0.0))
        raw = os.pread(self._file, count * 8 * WORDS, first * 8 * WORDS)
        buffer.fixed["data"][position : position + count] = np.frombuffer(raw, np.int64).reshape(count, WORDS)
        if self._fmt.log is not None:
            with self._fmt.log.open("ab", buffering=0) as log:
                log.write(b"r")

    def close(self) -> None:
        os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


def config_of(root: Path, num_files: int = 3, samples_per_file: int = 7, **dataset: Any) -> Config:
    """A data set of fixed-length and variable-length arrays in HDF5 files below ``root``."""
    fields = [
        FieldConfig(shape=[5]),
        FieldConfig(name="v/rows", dtype="int32", shape=[2], length_mean=4, length_stdev=2),
    ]
    options = {"format": "hdf5", "fields": fields, **dataset}
    return Config(
        recipe="test",
        dataset=DatasetConfig(root=str(root), num_files=num_files, samples_per_file=samples_per_file, **options),
    )


def make(config: Config, fmt: Format | None = None) -> tuple[Format, dict[str, Manifest]]:
    """Generate the data set; its format and manifests."""
    fmt = fmt or registry.create(config.dataset, config.seed)
    generate(replace(config, generate=replace(config.generate, num_workers=1)), fmt, SingleCommunicator(), NULL)
    return fmt, generated_manifests(config, fmt)


def make_raw(root: Path, num_files: int = 3, samples_per_file: int = 7) -> tuple[RawFormat, Manifest]:
    """A data set of :class:`RawFormat`."""
    config = config_of(root, num_files, samples_per_file, format="raw")
    fmt = RawFormat(config.dataset)
    return fmt, make(config, fmt)[1]["train"]


def loader_of(fmt: Format, manifest: Manifest, sampler: BatchSampler | None = None, **options: Any) -> BatchLoader:
    """A loader of batches of two; ``options`` are those of ``loader``."""
    dataset = CatchingDataset(SampleDataset(fmt, manifest, NULL))
    sampler = sampler or BatchSampler(SamplerSpec(batch_size=2), num_samples=manifest.num_samples)
    return BatchLoader(LoaderConfig(**{"timeout_s": 60.0, **options}), dataset, sampler)


def epoch_of(loader: BatchLoader, number: int = 0, *, read_on: bool = True) -> list[Batch]:
    """All batches of an epoch, taken as the trainer takes them."""
    taken = []
    batches = loader.epoch(number)
    for batch in batches:
        taken.append({name: tensor.clone() for name, tensor in batch.items()})
        if read_on:
            batches.read_on()
    return taken


def numbers(batches: Iterable[Batch | Fetched]) -> list[list[int]]:
    """The samples' numbers in each batch."""
    opened = (one.opened() if isinstance(one, Fetched) else one for one in batches)
    return [batch["index"].tolist() for batch in opened]


class _ThreadCommunicator(SingleCommunicator):
    def __init__(self, rank: int, world_size: int, barrier: threading.Barrier, box: list[Any]) -> None:
        super().__init__()
        self.rank, self.world_size = rank, world_size
        self.on_failure: list[FailureHook] = []
        self._barrier, self._box = barrier, box

    def barrier(self) -> None:
        self._barrier.wait()

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        return self._exchange(value)[root]

    def gather_objects(self, value: Any, root: int = 0) -> list[Any] | None:
        values = self._exchange(value)
        return values if self.rank == root else None

    def _exchange(self, value: Any) -> list[Any]:
        self._box[self.rank] = value
        self._barrier.wait()
        values = list(self._box)
        self._barrier.wait()
        return values

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        raise NotImplementedError


def run_threads(world_size: int, work: Callable[[SingleCommunicator], Any]) -> list[Any]:
    """``work`` on ranks that are threads of this process; what each returned, or the first exception."""
    barrier, box = threading.Barrier(world_size, timeout=60), [None] * world_size

    def rank(number: int) -> Any:
        try:
            return work(_ThreadCommunicator(number, world_size, barrier, box))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(world_size) as pool:
        futures = [pool.submit(rank, number) for number in range(world_size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in futures]
