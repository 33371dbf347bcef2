"""Puts sampler, dataset and loader of one rank together from the configuration."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.engines.batch_loader import BatchLoader, Source
from dlio_torch.data.engines.held_batches import HeldLoader
from dlio_torch.data.engines.replay_reads import serve
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.order.lanes_plan import LanesPlan, RowsOf
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.stream_plan import StreamPlan
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


def train_sampler(
    config: Config, manifest: Manifest, rank: int, world_size: int, fmt: Format | None = None
) -> BatchSampler | PipePlan | HeldPlan:
    """The order in which ``rank`` reads training samples.

    Args:
        config: the experiment.
        manifest: the training samples.
        rank: this rank.
        world_size: all ranks.
        fmt: knows the lengths of generated samples, on which the contents of lanes depend.

    Raises:
        ConfigError: the batch or the steps do not fit the data.
    """
    hold, steps = config.access.hold_steps, config.train.steps
    plan = _sampler(config, manifest, rank, world_size, steps=-(-steps // hold), fmt=fmt)
    return plan if hold == 1 else HeldPlan(plan, hold, steps)


def fit_steps(config: Config, manifests: dict[str, Manifest], world_size: int, scaled: Collection[str]) -> Config:
    """Limit the steps that the scale chose to what existing data give.

    How much they hold is not known while the scale is applied; steps that the user or the recipe asked
    for are left alone, and refused where the data do not give them.

    Args:
        config: the experiment.
        manifests: the data, by split.
        world_size: all ranks.
        scaled: options that the scale changed.
    """
    access, train = config.access, config.train
    endless = access.repeat or access.pattern == "lanes" or access.order == "random_blocks"
    if config.dataset.path is None or endless or "train.steps" not in scaled:
        return config
    everything = replace(config, train=replace(train, steps=0))
    given = len(train_sampler(everything, manifests["train"], 0, world_size))
    return replace(config, train=replace(train, steps=min(train.steps, given)))


def eval_sampler(
    config: Config, manifest: Manifest, rank: int, world_size: int, batch_size: int
) -> BatchSampler | PipePlan | None:
    """The order in which ``rank`` reads evaluation samples; ``None`` if it evaluates nothing.

    Args:
        config: the experiment.
        manifest: the evaluation samples.
        rank: this rank.
        world_size: all ranks.
        batch_size: samples of a rank's training batch, the default of an evaluation batch.
    """
    train = config.train
    if not (train.eval_every_epochs or train.eval_every_steps):
        return None
    if train.eval_ranks == "first":
        if rank != 0:
            return None
        world_size = 1
    eval_batch = train.eval_batch_size or batch_size
    return _sampler(config, manifest, rank, world_size, steps=train.eval_steps, eval_batch=eval_batch)


def _sampler(
    config: Config,
    manifest: Manifest,
    rank: int,
    world_size: int,
    *,
    steps: int,
    eval_batch: int | None = None,
    fmt: Format | None = None,
) -> BatchSampler | PipePlan:
    access, train = config.access, config.train
    evaluates = eval_batch is not None
    common: dict[str, Any] = {
        "order": access.order,
        "batch_size": train.batch_size if eval_batch is None else eval_batch,
        "batch_scope": "rank" if evaluates else train.batch_scope,
        "seed": config.seed,
        "rank": rank,
        "world_size": world_size,
        "steps": steps,
        "batch_key": "train.eval_batch_size" if evaluates else "train.batch_size",
        "steps_key": "train.eval_steps" if evaluates else "train.steps",
    }
    parts = max(1, config.loader.num_workers)
    if access.pattern == "stream":
        return StreamPlan(
            manifest.counts(),
            partition=access.partition,  # type: ignore[arg-type]  # validate() has refused others
            shard=access.shard,
            whole=access.unit == "file",
            interleave=access.interleave,
            interleave_prefetch=access.interleave_prefetch,
            interleave_buffer=access.interleave_buffer,
            pool=access.shuffle_pool,
            repeat=access.repeat and not evaluates,
            tail=access.tail,
            parts=parts,
            **common,
        )
    if access.pattern == "lanes":
        lengths = RowsOf(fmt, manifest.first_sample) if fmt is not None else None
        return LanesPlan(
            manifest.num_samples,
            rows=access.lane_rows,
            random_steps=access.lane_random_steps,
            probe=access.lane_probe,
            rows_of=lengths,
            parts=parts,
            **common,
        )
    by_file = access.partition == "files"
    return BatchSampler(
        num_samples=None if by_file else manifest.num_samples,
        file_counts=manifest.counts() if by_file else None,
        partition=access.partition,
        stride=access.stride,
        tail=access.tail,
        **common,
    )


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
