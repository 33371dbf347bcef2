"""Readers of a recipe's data: processes that share the batches of an epoch, as the workers of a loader do.

Formats that know the extents of their samples are read without decoding; others through their library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.engines.decoupled.group_plan import Planner
from dlio_torch.data.engines.decoupled.open_files import Files, OpenFile
from dlio_torch.data.order.orders import Indices
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import INDEX, batch_bytes
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout_whole_file import read_whole
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.extents import open_mover
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.parallel_tasks import Amount, Task
from dlio_torch.node.limits.raw_requests import OpeningBytes, RawRequests
from dlio_torch.storage.local.device_limits import ReadWorkload
from dlio_torch.units import counted

Kind = Literal["extents", "files", "library"]
"""Ways to read samples."""

_Read = Callable[[Sequence[Indices]], float]
"""Reads batches of sample numbers; returns the bytes that were read."""
_GROUP, _GROUP_BYTES = 16, 4 << 20  # most batches, and bytes, between two looks at the clock


@dataclass(frozen=True)
class RecipeReads:
    """Reads of a part of a recipe's data by several processes.

    Attributes:
        recipe: the recipe.
        readers: number of processes.
        steps: batches of an epoch that are read; of streams, all.
        kind: ``extents`` or whole ``files``, which are not decoded, or calls of the format's ``library``.
    """

    recipe: MeasuredRecipe
    readers: int
    steps: int
    kind: Kind

    @classmethod
    def of(cls, recipe: MeasuredRecipe, most_bytes: float) -> RecipeReads:
        """The reads of a recipe, limited to about ``most_bytes`` stored bytes where batches can be chosen.

        Raises:
            DlioError: batches do not fit the data.
        """
        most = ReadWorkload.most("cold").threads
        if not recipe.reads_batches:
            return cls(recipe, max(1, min(most, recipe.manifest.num_files)), 0, "library")
        available = len(_sampler(recipe))
        batch_size = max(1.0, recipe.batch_size * recipe.stored_sample_bytes)
        steps = min(available, max(most, int(most_bytes // batch_size)))
        return cls(recipe, min(most, steps), steps, _kind_of_reads(recipe))

    def tasks(self, epoch: int, *, again: bool = False) -> list[Task]:
        """Tasks of all readers.

        Args:
            epoch: number of the epoch, from 0, on which shuffled orders depend.
            again: read the same batches again and again; else once.
        """
        read = self._read_share if self.recipe.reads_batches else self._read_stream
        return [partial(read, number, epoch, again) for number in range(self.readers)]

    def files(self, epoch: int) -> list[str]:
        """Paths of the files that the readers read in an epoch."""
        manifest = self.recipe.manifest
        numbers = np.arange(manifest.num_files)
        if self.steps and self.steps < len(sampler := _sampler(self.recipe)):
            produce = sampler.batch_producer(epoch)
            samples = np.unique(np.concatenate([produce(step) for step in range(self.steps)]))
            numbers = np.unique(manifest.locate_all(samples)[0])
        return [str(path) for file in numbers.tolist() for path in self.recipe.format.files(manifest.path(file))]

    def __str__(self) -> str:
        batch = f"batches of {counted(self.recipe.batch_size, 'sample')}"
        processes = counted(self.readers, "process", "processes")
        if self.kind == "library":
            return f"{batch} read by {processes} through the format's library, decoding included"
        if self.kind == "files":
            return f"the files of {batch}, each read whole, by {processes}, without decoding"
        merged = "adjacent ones merged" if self.recipe.reads_ranges else "one request each, in the order of samples"
        return f"the extents of {batch} ({merged}) read by {processes}, without decoding"

    def _read_share(self, number: int, epoch: int, again: bool) -> Iterator[Amount]:
        """Reads every n-th batch, as worker ``number`` of a loader."""
        readers = {"extents": self._extent_reader, "files": self._file_reader, "library": self._library_reader}
        read = readers[self.kind]()
        produce = _sampler(self.recipe).batch_producer(epoch)
        yield Amount()
        while True:
            for batches in self._groups(range(number, self.steps, self.readers)):
                indices = [produce(step) for step in batches]
                yield Amount(sum(map(len, indices)), read(indices))
            if not again:
                return

    def _groups(self, steps: range) -> Iterator[range]:
        """Batches that are planned at once, so that planning takes little of the time."""
        size = max(1.0, self.recipe.batch_size * self.recipe.stored_sample_bytes)
        count = max(1, min(_GROUP, int(_GROUP_BYTES // size)))
        return (steps[first : first + count] for first in range(0, len(steps), count))

    def _extent_reader(self) -> _Read:
        recipe, opening = self.recipe, OpeningBytes()
        loader = recipe.config.loader
        files = Files(recipe.format, recipe.manifest, opening, loader.max_open_files)
        planner = Planner(recipe.format.specs(), recipe.manifest, files)
        requests = RawRequests(open_mover() if recipe.reads_ranges else None, loader.transfer_size)
        return lambda batches: requests.read(planner(batches)) + opening.take()

    def _file_reader(self) -> _Read:
        recipe = self.recipe

        def read(batches: Sequence[Indices]) -> float:
            numbers = recipe.manifest.locate_all(np.concatenate(batches))[0]
            paths = [path for number in numbers.tolist() for path in recipe.format.files(recipe.manifest.path(number))]
            return sum(_size_read(path) for path in paths)

        return read

    def _library_reader(self) -> _Read:
        recipe, calls = self.recipe, ReadBytes()
        dataset = SampleDataset(
            recipe.format, recipe.manifest, NULL, unit=recipe.config.access.unit,
            max_open_files=recipe.config.loader.max_open_files,
        )  # fmt: skip

        def read(batches: Sequence[Indices]) -> float:
            for indices in batches:
                dataset.__getitems__(indices.tolist())
            return calls.take()

        return read

    def _read_stream(self, number: int, epoch: int, again: bool) -> Iterator[Amount]:
        """Reads the share of rank ``number`` once, or less where lanes or repetition would read samples again."""
        recipe, calls = self.recipe, ReadBytes()
        compute = replace(recipe.config.compute, preprocess_s=0.0)
        loaders = recipe.loaders(replace(recipe.config, compute=compute), number, self.readers)
        most = recipe.sample_bytes * recipe.manifest.num_samples / self.readers
        yield Amount()
        try:
            while True:
                size, batches = 0.0, loaders.train.epoch(epoch)
                for _ in range(len(loaders.train)):
                    batch = next(batches)
                    batches.read_on()
                    size += batch_bytes(batch)
                    yield Amount(len(batch[INDEX]), calls.take())
                    if size >= most:
                        break
                if not again:
                    return
        finally:
            loaders.close()


class ReadBytes:
    """Bytes that the read calls of this process return; those that a mapped file gives are not among them."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._total()

    def take(self) -> int:
        """Returns the bytes since the last call."""
        before, self._before = self._before, self._total()
        return self._before - before

    def _total(self) -> int:
        try:
            return int(self._process.io_counters().read_chars)
        except (psutil.Error, OSError, AttributeError):
            return 0


def _size_read(path: Path) -> int:
    with os_errors(path):
        return len(read_whole(path, None))


def _sampler(recipe: MeasuredRecipe) -> BatchSampler:
    sampler = train_sampler(recipe.config, recipe.manifest, 0, 1, recipe.format)
    assert isinstance(sampler, BatchSampler)  # access.pattern=samples, and each batch serves one step
    return sampler


def _kind_of_reads(recipe: MeasuredRecipe) -> Kind:
    """How the samples of a recipe can be read without decoding, from the layout of its first file."""
    if not recipe.format.has_layout or recipe.config.dataset.direct_io:
        return "library"
    try:
        layout = OpenFile(recipe.format.layout(recipe.manifest.path(0))).layout
    except DlioError:
        return "library"
    if not any(array.in_memory for array in layout.arrays.values()):
        return "extents"
    return "files" if layout.once else "library"  # opening a file reads and decodes all of it
