"""Dataset whose batches are read by MPI-IO, step by step in the same order on all ranks."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.verification import check_contents, check_count
from dlio_torch.data.engines.decoupled.batch_groups import batches_of
from dlio_torch.data.engines.decoupled.group_plan import ArraySection, ReadPlan
from dlio_torch.data.engines.mpiio.byte_ranges import FlatFile
from dlio_torch.data.engines.mpiio.reading_ranks import Meeting
from dlio_torch.data.engines.mpiio.step_files import NeededFiles
from dlio_torch.data.order.orders import Indices
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.errors import RunFailed
from dlio_torch.formats.core.batch import Batch, BatchBuffer, batch_bytes
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Extents, Ints
from dlio_torch.formats.core.mpi_file import SharedFile
from dlio_torch.iotrace.recorder.spans import Recorder

_ALIGNED = 64
_NO_EXTENTS = Extents(*(np.zeros(0, np.int64) for _ in range(3)))
_File = FlatFile | SharedFile


class MpiDataset:
    """Map-style dataset of one split, read by MPI-IO; :meth:`begin` sets the next step.

    Args:
        fmt: knows the files.
        manifest: where each sample lies.
        sampler: the batches that will be asked for, in their order.
        meeting: who reads.
        recorder: takes spans ``open``, ``read`` and in it the call itself, ``preprocess`` and ``collate``.
        unit: ``sample`` makes a call for each sample, ``block`` one for all samples of a batch in a file.
        preprocess: CPU time to spend on each sample.
        max_open_files: files that stay open, where a step does not need more.
        verify: compare each sample with what was generated.
    """

    def __init__(
        self,
        fmt: Format,
        manifest: Manifest,
        sampler: BatchSampler,
        meeting: Meeting,
        recorder: Recorder,
        *,
        unit: str = "sample",
        preprocess: Preprocess | None = None,
        max_open_files: int = 64,
        verify: bool = False,
    ) -> None:
        self._format = fmt
        # Without direct I/O, some formats read small files whole to find out where their samples lie.
        self._layout_format = type(fmt)(replace(fmt.config, direct_io=True), fmt.seed) if fmt.reads_direct else fmt
        self._manifest = manifest
        self._meeting = meeting
        self._recorder = recorder
        self._by_step = unit == "block"
        self._preprocess = preprocess
        self._max_open = max_open_files
        self._verify = verify
        self._specs = fmt.specs()
        self._call = "read_at_all" if meeting.collective else "read_at"
        self._needed = NeededFiles(sampler, manifest, by_step=self._by_step) if meeting.collective else None
        self._step = 0
        self._open: OrderedDict[int, _File] = OrderedDict()

    def __len__(self) -> int:
        return self._manifest.num_samples

    def begin(self, epoch: int, step: int) -> None:
        """Set the step of the next batch."""
        if self._needed is not None:
            self._needed.begin(epoch)
        self._step = step

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Reads the batch of the next step, which has the samples ``indices``.

        Raises:
            DataError: a file is damaged or missing, or (``verify``) holds other content.
        """
        add, clock = self._recorder.add, time.perf_counter_ns
        numbers = np.asarray(indices, np.int64)
        files, rows = self._manifest.locate_all(numbers)
        calls = list(self._calls(files))
        self._step += 1
        self._open_all(sorted(set(chain.from_iterable(needed for _, needed in calls))))
        buffer = _Buffer(self, numbers, files, rows)
        for positions, needed in calls:
            for number in needed:
                mine = positions[files[positions] == number]
                path = str(self._manifest.path(number))
                began = clock()
                size = buffer.read(number, mine, rows[mine])
                add("read", began, clock(), file=path, bytes=size)
        if self._preprocess is not None:
            began = clock()
            self._preprocess.burn(len(indices))
            add("preprocess", began, clock())
        began = clock()
        batch = buffer.finish()
        add("collate", began, clock(), bytes=batch_bytes(batch))
        if self._verify:
            check_contents(batch, self._format, self._manifest)
        return batch

    def _calls(self, files: Ints) -> Iterator[tuple[Ints, list[int]]]:
        """Yields batch positions and files of each read call, including files that only other ranks need."""
        every = np.arange(len(files))
        groups = [every] if self._by_step else np.split(every, len(files))
        if self._needed is None:
            for positions in groups:
                yield positions, np.unique(files[positions]).tolist()
            return
        for positions, needed in zip(groups, self._needed(self._step, len(files)), strict=True):
            if not set(files[positions].tolist()) <= set(needed):  # the others would wait without end
                raise RunFailed(
                    "this rank was asked for another batch than the other ranks expect, so that collective reads "
                    "would hang"
                )
            yield positions, needed

    def _open_all(self, numbers: Sequence[int]) -> None:
        """Open these files if needed; all ranks that read together must pass the same files."""
        for number in numbers:
            if number in self._open:
                self._open.move_to_end(number)
                continue
            path = self._manifest.path(number)
            began = time.perf_counter_ns()
            file: _File
            if self._format.mpi_io == "library":
                with self._meeting.watch("opening a file"):
                    file = self._format.open_shared(path, self._meeting)
                if self._meeting.figures.hints is None:
                    self._meeting.file(path).Close()  # the library keeps the hints in force to itself
                count = file.num_samples
            else:
                file = FlatFile(self._layout_format, path, self._specs, self._meeting)
                count = file.layout.num_samples or 0
            self._recorder.add("open", began, time.perf_counter_ns(), file=str(path))
            self._meeting.keep(file)
            self._open[number] = file
            check_count(path, count, self._manifest.count(number))
        while len(self._open) > max(self._max_open, len(numbers)):
            self._meeting.drop(self._open.popitem(last=False)[1])


class _Buffer:
    """Memory of a batch, and reads of files into it."""

    def __init__(self, dataset: MpiDataset, indices: Indices, files: Ints, rows: Ints) -> None:
        self._dataset = dataset
        self._indices = indices
        self._library = BatchBuffer(dataset._specs, indices.tolist()) if dataset._format.mpi_io == "library" else None
        if self._library is not None:
            return
        self._sections: list[ArraySection] = []
        size = 0
        for spec in dataset._specs:
            sizes = np.full(len(indices), math.prod(spec.shape) * spec.dtype.itemsize, np.int64)
            if spec.variable:
                for number in np.unique(files).tolist():
                    file, mine = dataset._open[number], files == number
                    assert isinstance(file, FlatFile)
                    sizes[mine] = file.layout.arrays[spec.name].sizes(rows[mine])
            self._sections.append(ArraySection(spec, size, np.concatenate([[0], np.cumsum(sizes)])))
            size += -(-int(sizes.sum()) // _ALIGNED) * _ALIGNED
        self._memory = np.empty(size, np.uint8)

    def read(self, number: int, positions: Ints, rows: Ints) -> int:
        """Read samples of file ``number``; returns the requested bytes."""
        dataset = self._dataset
        file = dataset._open[number]
        began = time.perf_counter_ns()
        if isinstance(file, FlatFile):
            into = [section.first + section.ends[:-1][positions] for section in self._sections]
            size = file.read(rows, into, self._memory)
        else:
            assert self._library is not None
            with dataset._meeting.watch(f"a {dataset._meeting.figures.io} read"):
                size = file.read(rows, positions, self._library)
            dataset._meeting.figures.count(size)
        dataset._recorder.add(
            dataset._call, began, time.perf_counter_ns(), file=str(dataset._manifest.path(number)), bytes=size
        )
        return size

    def finish(self) -> Batch:
        """Returns the tensors of the batch."""
        if self._library is not None:
            return self._library.finish()
        nowhere = np.zeros(0, np.int32)
        size = len(self._memory)
        counts = (len(self._indices),)
        plan = ReadPlan(self._indices, counts, self._sections, size, nowhere, _NO_EXTENTS, (), (), (), {}, ())
        return batches_of(plan, self._memory)[0]
