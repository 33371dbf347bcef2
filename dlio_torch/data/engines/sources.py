"""Sources of the loaders of a rank: datasets and pipes, or their content kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import IterDataPipe

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.in_memory_dataset import InMemoryDataset
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import BatchSource, CatchingDataset, SampleDataset
from dlio_torch.data.engines import registry
from dlio_torch.data.engines.batch_loader import Source
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.replay import (
    Start,
    keep_batches,
    keep_batches_of_records,
    keep_records,
    keep_samples,
)
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline.lanes import LanesStart
from dlio_torch.data.pipeline.stream import (
    BatchAssembler,
    PipeStream,
    RecordBatches,
    StreamStart,
)
from dlio_torch.data.pipeline.stream_dataset import Record, StreamDataset
from dlio_torch.data.workers.transfer_errors import shared_numbers
from dlio_torch.formats.core.batch import ArraySpec, Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting


class Loading:
    """Factory of the sources of a rank's loaders.

    Args:
        config: the experiment.
        fmt: reads the files.
        recorder: takes the spans.
        preprocess: CPU time to spend on each sample.
        verify: compare each sample with what was generated.
        meeting: the ranks that read by MPI-IO; ``None``: files are read by POSIX calls.

    Attributes:
        in_memory_bytes: bytes that were read into memory; ``None`` if nothing was.
    """

    def __init__(
        self,
        config: Config,
        fmt: Format,
        recorder: Recorder,
        *,
        preprocess: Preprocess | None = None,
        verify: bool = False,
        meeting: Meeting | None = None,
    ) -> None:
        self._config = config
        self._meeting = meeting
        self._format = fmt
        self._recorder = recorder
        self.in_memory_bytes: int | None = None
        self._preprocess = preprocess
        self._verify = verify

    def source(self, manifest: Manifest, plan: Plan, epochs: int) -> Source:
        """Creates the source of a plan's batches; reads all samples into memory if ``loader.in_memory`` is set."""
        plan = fetched_by(plan)
        self._probe(manifest)
        if self._meeting is not None:
            return CatchingDataset(self._by_mpiio(manifest, plan, self._meeting), self._recorder)
        if registry.facts(self._config.loader.engine).reads_ranges:
            return DecoupledSource(self._format, manifest, self._recorder, self._preprocess, self._verify)
        if isinstance(plan, PipePlan):
            start, specs = self._start(manifest, plan)
            if isinstance(plan, LanesPlan):
                return self._pipe(plan, start, specs)
            check = self._stream(manifest).check if self._verify else None
            return self._pipe(plan, start, specs, self._preprocess, check)
        dataset = self._dataset(manifest)
        if not self._config.loader.num_workers or self._config.loader.opened_by == "main":
            dataset.open_first()  # else a worker opens its own
        if not self._config.loader.in_memory:
            return CatchingDataset(dataset, self._recorder)
        loaded = InMemoryDataset(dataset, _wanted(plan, epochs), self._recorder)
        self._took(loaded.nbytes())
        return CatchingDataset(loaded, self._recorder)

    def _probe(self, manifest: Manifest) -> None:
        """Open and close the files that the program opens to learn what they hold."""
        count = {"none": 0, "first": 1, "all": manifest.num_files}[self._config.loader.probe_files]
        for file in range(count if self._format.needs_files else 0):
            self._format.open(manifest.path(file), self._recorder).close()

    def replayed(self, manifest: Manifest, plan: Plan) -> Source:
        """Creates the replacement of :meth:`source` if ``loader.replay`` is ``samples`` or ``batches``.

        Raises:
            DataError: what is to be kept cannot be read.
        """
        plan = fetched_by(plan)
        # Nothing but the reading, and no spans: only the training is of interest.
        reading = Loading(self._config, self._format, NULL)
        if isinstance(plan, PipePlan):
            return self._records(manifest, plan, reading)
        assert isinstance(plan, BatchSampler)
        return self._samples(manifest, plan, reading)

    def _samples(self, manifest: Manifest, plan: BatchSampler, reading: Loading) -> Source:
        options, dataset = self._config.loader, reading._dataset(manifest)
        if options.replay == "batches":
            batches = keep_batches(options, dataset, plan)
            self._took(batches.nbytes())
            return batches
        samples = keep_samples(options, dataset, plan, self._format.specs(), self._recorder)
        self._took(samples.nbytes())
        return CatchingDataset(samples, self._recorder)

    def _records(self, manifest: Manifest, plan: PipePlan, reading: Loading) -> Source:
        options, (start, specs) = self._config.loader, reading._start(manifest, plan)
        if options.replay == "batches":
            batches = keep_batches_of_records(options, start, specs, plan)
            self._took(batches.nbytes())
            return batches
        records = keep_records(options, start, specs, plan)
        self._took(records.nbytes())
        return self._pipe(plan, records, specs)

    def _took(self, size: int) -> None:
        self.in_memory_bytes = (self.in_memory_bytes or 0) + size

    def _dataset(self, manifest: Manifest, max_open_files: int = 0) -> SampleDataset:
        config = self._config
        return SampleDataset(
            self._format,
            manifest,
            self._recorder,
            unit=config.access.unit,
            preprocess=self._preprocess,
            max_open_files=max_open_files or config.loader.max_open_files,
            verify=self._verify,
            inherited=config.loader.opened_by == "main",
            epoch=shared_numbers(1) if self._format.depends_on_epoch else None,
        )

    def _by_mpiio(self, manifest: Manifest, plan: Plan, meeting: Meeting) -> BatchSource:
        from dlio_torch.data.engines.mpiio.dataset import MpiDataset

        assert isinstance(plan, BatchSampler)  # validate() has refused others
        alone = plan.spec.world_size < meeting.comm.size  # one rank alone evaluates
        return MpiDataset(
            self._format,
            manifest,
            plan,
            meeting.alone() if alone else meeting,
            self._recorder,
            unit=self._config.access.unit,
            preprocess=self._preprocess,
            max_open_files=self._config.loader.max_open_files,
            verify=self._verify,
        )

    def _start(self, manifest: Manifest, plan: PipePlan) -> tuple[Start, Sequence[ArraySpec]]:
        """Start of a pipe of records, and the specifications of a record's arrays."""
        if isinstance(plan, LanesPlan):
            # One file at a time; samples are preprocessed and checked where they are read, as whole ones.
            lanes = LanesStart(plan, self._dataset(manifest, max_open_files=1), self._format.specs())
            return lanes, lanes.specs()
        assert isinstance(plan, StreamPlan)
        return StreamStart(plan, self._stream(manifest)), self._format.specs()

    def _stream(self, manifest: Manifest) -> StreamDataset:
        return StreamDataset(self._format, manifest, self._recorder, unit=self._config.access.unit)

    def _pipe(
        self,
        plan: PipePlan,
        start: Start,
        specs: Sequence[ArraySpec],
        preprocess: Preprocess | None = None,
        check: Callable[[Batch], None] | None = None,
    ) -> PipeStream:
        def assemble_batches(records: IterDataPipe[list[Record]]) -> BatchAssembler:
            return BatchAssembler(records, specs, self._recorder, preprocess, check)

        threads = max(1, self._config.loader.read_threads)
        return PipeStream(RecordBatches(plan, start), assemble_batches, threads, self._recorder)


def _wanted(sampler: Plan, epochs: int) -> list[int]:
    """Numbers of all samples that this rank will request."""
    share = sampler.share
    wanted = np.zeros(len(share), np.bool_)
    if isinstance(sampler, BatchSampler) and sampler.spec.order in ("sequential", "strided"):
        epochs = min(epochs, 1)  # each of them is as the first
    for epoch in range(epochs):
        wanted[sampler.expected(epoch) - share.start] = True
        if wanted.all():
            break
    numbers: list[int] = (np.flatnonzero(wanted) + share.start).tolist()
    return numbers
