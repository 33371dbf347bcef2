"""Creation of the decoupled engine: in this process, in worker processes, or as a DataPipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.datapipe import ExtentReader
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.engines.decoupled.worker_engine import WorkersEngine
from dlio_torch.data.engines.torch_loader.engine import DataLoaderEngine, over_pipe
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.sample_pipes import BatchIndices, EpochBatches
from dlio_torch.data.workers.exits import WorkerLimits
from dlio_torch.data.workers.placement import UNPLACED, Placement, ReadingThread

if TYPE_CHECKING:
    from dlio_torch.data.engines.batch_loader import Engine, Source


class PipeEngine(DataLoaderEngine):
    """DataLoader over a DataPipe that reads by threads of this process.

    Args:
        config: the options of ``loader``.
        batches: the sample numbers that the pipe reads.
        pipe: the pipe.
        limits: those that workers may meet.
    """

    def __init__(self, config: LoaderConfig, batches: EpochBatches, pipe: ExtentReader, limits: WorkerLimits) -> None:
        super().__init__(config, batches.begin, [over_pipe(config, pipe)], pipe.close, limits)
        self._pipe = pipe

    @property
    def threads(self) -> Sequence[ReadingThread]:
        """See ``loader.Engine``."""
        return self._pipe.threads


def build(
    config: LoaderConfig,
    source: Source,
    sampler: BatchSampler | PipePlan,
    limits: WorkerLimits,
    placement: Placement = UNPLACED,
) -> Engine:
    """Builds the engine for a rank's batches.

    Args:
        config: the options of ``loader``.
        source: names the files; a :class:`DecoupledSource`.
        sampler: which samples, in which order.
        limits: those that workers may meet.
        placement: CPUs of workers or reader threads.
    """
    assert isinstance(source, DecoupledSource)  # Loading.source() gives this engine no other
    if config.style == "pipe" and not isinstance(sampler, PipePlan):
        batches = EpochBatches(sampler)
        pipe = ExtentReader(BatchIndices(batches), source, config, placement)
        # The pipe has threads of its own, and its memory is pinned already.
        options = replace(config, read_threads=0, pin_memory=False)
        return PipeEngine(options, batches, pipe, limits)
    if config.num_workers:
        return WorkersEngine(config, source, sampler, limits, placement)
    return DecoupledEngine(config, source, sampler, placement=placement)
