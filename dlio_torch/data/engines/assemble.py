"""Assembly of the dataset and the loaders of one rank from the configuration and the order of samples."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.engines.batch_loader import BatchLoader, Source
from dlio_torch.data.engines.held_batches import HeldLoader
from dlio_torch.data.engines.replay_reads import serve
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.order.planning import RankOrder
from dlio_torch.data.workers.placement import UNPLACED, Placement
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.supervision.watchdog import NO_WATCHDOG, WatchdogSettings

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting


@dataclass(frozen=True)
class Loaders:
    """Loaders that feed the trainer of one rank.

    Attributes:
        train: training batches.
        eval: evaluation batches; ``None`` if this rank evaluates nothing.
        load_s: seconds that reading the share, or what is replayed, into memory took; ``None`` if nothing was.
        load_bytes: bytes of that in memory; ``None`` likewise.
    """

    train: BatchLoader
    eval: BatchLoader | None
    load_s: float | None
    load_bytes: int | None

    def close(self) -> None:
        """End workers and threads."""
        self.train.close()
        if self.eval is not None:
            self.eval.close()


def assemble(
    config: Config,
    fmt: Format,
    manifests: Mapping[str, Manifest],
    order: RankOrder,
    recorder: Recorder,
    meeting: Meeting | None = None,
    watchdog: WatchdogSettings = NO_WATCHDOG,
    placement: Placement = UNPLACED,
) -> Loaders:
    """Make the loaders of one rank.

    Files of ``dataset.once`` are read first, then what ``loader.in_memory`` or ``loader.replay`` keep in memory.

    Args:
        config: the experiment.
        fmt: format of the data.
        manifests: the files to read, by split.
        order: the order of this rank's samples.
        recorder: takes the spans.
        meeting: the ranks that read by MPI-IO; ``None``: files are read by POSIX calls.
        watchdog: settings of the watchdog for late batches.
        placement: CPUs of workers or reader threads.

    Raises:
        DataError: a file that is read first cannot be read.
    """
    sampler, evaluation = order.train, order.evaluation
    OnceFiles(config, fmt).read(manifests)
    preprocess = Preprocess(config.compute) if config.compute.preprocess_s > 0 else None
    loading = Loading(config, fmt, recorder, preprocess=preprocess, verify=config.verify, meeting=meeting)
    if meeting is not None:  # ranks that read by MPI-IO wait for each other, which has a limit of its own
        watchdog = replace(watchdog, give_up=None)
    tensors = len(fmt.specs())
    began = time.perf_counter()
    if config.loader.replay == "reads" and fmt.needs_files:
        train = manifests["train"]
        files = (file for number in range(train.num_files) for file in fmt.files(train.path(number)))
        loading.in_memory_bytes = serve(file for file in files if file.exists())
    source: Source
    if config.loader.replay in ("samples", "batches"):
        source = loading.replayed(manifests["train"], sampler)
    else:
        source = loading.source(manifests["train"], sampler, config.train.epochs)
    eval_loader = None
    if evaluation is not None:
        eval_source = loading.source(manifests["eval"], evaluation, 1)
        eval_loader = BatchLoader(
            config.loader, eval_source, evaluation, watchdog=watchdog, tensors=tensors, placement=placement
        )
    load_s = time.perf_counter() - began if loading.in_memory_bytes is not None else None
    feed = (
        HeldLoader(config.loader, source, sampler, watchdog=watchdog, tensors=tensors, placement=placement)
        if isinstance(sampler, HeldPlan)
        else BatchLoader(config.loader, source, sampler, watchdog=watchdog, tensors=tensors, placement=placement)
    )
    return Loaders(feed, eval_loader, load_s, loading.in_memory_bytes)
