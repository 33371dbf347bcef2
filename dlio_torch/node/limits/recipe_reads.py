"""Readers of a recipe's data: processes that share the batches of an epoch, as the workers of a loader do.

Formats that know the extents of their samples are read without decoding; others through their library.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, islice
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
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.formats.core.batch import INDEX
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout_whole_file import read_whole
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.extents import open_mover
from dlio_torch.node.limits.decode_limit import epoch_batches
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
_MOST_STEPS = 1 << 16
_LEAST_READ = 0.75  # of the files of a stream, where ranks with more files than others leave some unread


@dataclass(frozen=True)
class RecipeReads:
    """Reads of a part of a recipe's data by several processes.

    Attributes:
        recipe: the recipe.
        readers: number of processes.
        steps: batches of an epoch that may be read; of streams, all.
        kind: ``extents`` or whole ``files``, which are not decoded, or calls of the format's ``library``.
    """

    recipe: MeasuredRecipe
    readers: int
    steps: range
    kind: Kind

    @classmethod
    def of(cls, recipe: MeasuredRecipe, most_bytes: float) -> RecipeReads:
        """The reads of a recipe, limited to about ``most_bytes`` stored bytes where batches can be chosen.

        Raises:
            DlioError: batches do not fit the data.
        """
        most = ReadWorkload.most("cold").threads
        if not recipe.reads_batches:
            return cls(recipe, _stream_readers(recipe, most), range(0), "library")
        batch_bytes = max(1.0, recipe.reading.train.batch_size * recipe.stored_sample_bytes)
        steps = range(min(len(_sampler(recipe)), max(most, int(most_bytes // batch_bytes)), _MOST_STEPS))
        return cls(recipe, min(most, len(steps)), steps, _kind_of_reads(recipe))

    def second_half(self) -> RecipeReads:
        """The reads of the second half of the batches."""
        steps = self.steps[len(self.steps) // 2 :]
        return replace(self, steps=steps, readers=min(self.readers, len(steps)))

    def tasks(self, epoch: int, *, again: bool = False) -> list[Task]:
        """Tasks of all readers.

        Args:
            epoch: number of the epoch, from 0, on which shuffled orders depend.
            again: read the same batches again and again, after they were read once; else once.
        """
        if not self.recipe.reads_batches:
            return [partial(self._read_stream, number, epoch, again) for number in range(self.readers)]
        steps = self._disjoint(epoch)
        return [
            partial(self._read_share, steps[number :: self.readers], epoch, again) for number in range(self.readers)
        ]

    def files(self, epoch: int) -> list[str]:
        """Paths of the files that the readers read in an epoch."""
        manifest = self.recipe.manifest
        numbers = np.arange(manifest.num_files)
        if self.recipe.reads_batches and len(self.steps) < len(sampler := _sampler(self.recipe)):
            produce = sampler.batch_producer(epoch)
            samples = np.unique(np.concatenate([produce(step) for step in self.steps]))
            numbers = np.unique(manifest.locate_all(samples)[0])
        return [str(path) for file in numbers.tolist() for path in self.recipe.format.files(manifest.path(file))]

    def _disjoint(self, epoch: int) -> Sequence[int]:
        """The batches without those of random blocks that hold samples of an earlier one, which would be cached."""
        if self.recipe.reading.access.order != "random_blocks":
            return self.steps
        produce = _sampler(self.recipe).batch_producer(epoch)
        is_read = np.zeros(self.recipe.manifest.num_samples, np.bool_)
        disjoint = []
        for step in range(self.steps.stop):
            samples = produce(step)
            if step in self.steps and not is_read[samples].any():
                disjoint.append(step)
            is_read[samples] = True
        return disjoint

    def __str__(self) -> str:
        batch = f"batches of {counted(self.recipe.reading.train.batch_size, 'sample')}"
        processes = counted(self.readers, "process", "processes")
        if self.kind == "library":
            return f"{batch} read by {processes} through the format's library, decoding included"
        if self.kind == "files":
            return f"the files of {batch}, each read whole, by {processes}, without decoding"
        merged = "adjacent ones merged" if self.recipe.reads_ranges else "one request each, in the order of samples"
        return f"the extents of {batch} ({merged}) read by {processes}, without decoding"

    def _read_share(self, steps: Sequence[int], epoch: int, again: bool) -> Iterator[Amount]:
        """Reads the batches of ``steps``."""
        readers = {"extents": self._extent_reader, "files": self._file_reader, "library": self._library_reader}
        read = readers[self.kind]()
        produce = _sampler(self.recipe).batch_producer(epoch)

        def read_group(group: Sequence[int]) -> Amount:
            indices = [produce(step) for step in group]
            return Amount(sum(map(len, indices)), read(indices))

        groups = list(self._groups(steps))
        if again:
            groups = groups[: self._read_once(map(read_group, groups))]
        yield Amount()
        for group in cycle(groups) if again else groups:
            yield read_group(group)

    def _read_once(self, amounts: Iterator[Amount]) -> int:
        """Reads until all is done or the time is over; returns the number of amounts."""
        deadline = time.monotonic() + self.recipe.seconds
        done = 0
        for _ in amounts:
            done += 1
            if time.monotonic() >= deadline:
                break
        return done

    def _groups(self, steps: Sequence[int]) -> Iterator[Sequence[int]]:
        """Batches that are planned at once, so that planning takes little of the time."""
        size = max(1.0, self.recipe.reading.train.batch_size * self.recipe.stored_sample_bytes)
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
        """Reads the files of rank ``number``."""
        recipe, calls = self.recipe, ReadBytes()
        compute = replace(recipe.reading.compute, preprocess_s=0.0)
        loaders = recipe.loaders(replace(recipe.reading, compute=compute), number, self.readers)
        try:
            batches = self._read_once(Amount() for _ in epoch_batches(loaders, epoch)) if again else len(loaders.train)
            calls.take()
            yield Amount()
            for _ in count() if again else range(1):
                for batch in islice(epoch_batches(loaders, epoch), batches):
                    yield Amount(len(batch[INDEX]), calls.take())
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
    sampler = train_sampler(recipe.reading, recipe.manifest, 0, 1, recipe.format)
    assert isinstance(sampler, BatchSampler)  # access.pattern=samples, and each batch serves one step
    return sampler


def _stream_readers(recipe: MeasuredRecipe, most: int) -> int:
    """Most ranks that can share the files so that each gets a batch, and as many batches as the others.

    Raises:
        ConfigError: one rank alone gets none.
    """
    files = recipe.manifest.num_files
    for readers in range(min(most, files), 1, -1):
        if readers * (files // readers) < _LEAST_READ * files:
            continue
        with contextlib.suppress(ConfigError):
            for rank in range(readers):
                train_sampler(recipe.reading, recipe.manifest, rank, readers, recipe.format)
            return readers
    train_sampler(recipe.reading, recipe.manifest, 0, 1, recipe.format)
    return 1


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
