"""Puts sampler, dataset and loader of one rank together from the configuration."""

from __future__ import annotations

import time
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
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.data.order.planning import eval_sampler, train_sampler
from dlio_torch.environment.vigil import NO_WATCH, Watch
from dlio_torch.formats.core.format import Format
from dlio_torch.trace.spans import Recorder

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting


@dataclass(frozen=True)
class Loaders:
    """What feeds the trainer of one rank.

    Attributes:
        train: training batches.
        sampler: the order of the training samples, step by step.
        eval: evaluation batches; ``None`` if this rank evaluates nothing.
        load_s: seconds that reading the share, or what is replayed, into memory took; ``None`` if nothing was.
        load_bytes: bytes of that in memory; ``None`` likewise.
    """

    train: BatchLoader
    sampler: Plan
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
    manifests: dict[str, Manifest],
    recorder: Recorder,
    rank: int,
    world_size: int,
    meeting: Meeting | None = None,
    watch: Watch = NO_WATCH,
) -> Loaders:
    """Loaders of one rank; reads first what ``dataset.once`` names, and into memory what ``loader.in_memory`` or
    ``loader.replay`` ask for.

    ``meeting`` are the ranks that read by MPI-IO, where ``access.io`` asks for that.  ``watch`` says what is done
    about a batch that does not come.

    Raises:
        ConfigError: the batch or the steps do not fit the data.
        DataError: what is read first cannot be read.
    """
    sampler = train_sampler(config, manifests["train"], rank, world_size, fmt)
    OnceFiles(config, fmt).read(manifests)
    preprocess = Preprocess(config.compute) if config.compute.preprocess_s > 0 else None
    loading = Loading(config, fmt, recorder, preprocess=preprocess, verify=config.verify, meeting=meeting)
    if meeting is not None:  # ranks that read by MPI-IO wait for each other, which has a limit of its own
        watch = replace(watch, give_up=None)
    evaluation, tensors = None, len(fmt.specs())
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
    if "eval" in manifests:
        order = eval_sampler(config, manifests["eval"], rank, world_size, sampler.batch_size)
        if order is not None:
            evaluation = BatchLoader(
                config.loader, loading.source(manifests["eval"], order, 1), order, watch=watch, tensors=tensors
            )
    load_s = time.perf_counter() - began if loading.in_memory_bytes is not None else None
    feed = (
        HeldLoader(config.loader, source, sampler, watch=watch, tensors=tensors)
        if isinstance(sampler, HeldPlan)
        else BatchLoader(config.loader, source, sampler, watch=watch, tensors=tensors)
    )
    return Loaders(feed, sampler, evaluation, load_s, loading.in_memory_bytes)
