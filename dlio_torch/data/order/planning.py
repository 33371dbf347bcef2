"""Creation of a rank's orders of training and evaluation samples from the configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.order.lanes_plan import LanesPlan, RowsOf
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import LanesSpec, SamplerSpec, StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.formats.core.format import Format


@dataclass(frozen=True)
class RankOrder:
    """Orders in which one rank reads training and evaluation samples.

    Attributes:
        train: plan of the training samples, step by step.
        evaluation: plan of the evaluation samples; ``None`` if this rank evaluates nothing.
    """

    train: BatchSampler | PipePlan | HeldPlan
    evaluation: BatchSampler | PipePlan | None


def plan_order(config: Config, fmt: Format, manifests: Mapping[str, Manifest], rank: int, world_size: int) -> RankOrder:
    """Plan the order in which ``rank`` reads samples.

    Args:
        config: the experiment.
        fmt: format of the data.
        manifests: the data, by split.
        rank: this rank.
        world_size: number of ranks.

    Raises:
        ConfigError: the batch or the steps do not fit the data.
    """
    train, evaluation = train_sampler(config, manifests["train"], rank, world_size, fmt), None
    if "eval" in manifests:
        evaluation = eval_sampler(config, manifests["eval"], rank, world_size, train.batch_size)
    return RankOrder(train, evaluation)


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


def fit_to_data(
    config: Config, manifests: Mapping[str, Manifest], world_size: int, *, scaled: Collection[str], fits_batch: bool
) -> Config:
    """Limit batch size and steps that nobody set to what existing data allow.

    How much they hold is not known while the configuration is composed.  Values that the user or the recipe asked for
    are left alone, and refused where the data do not give them.

    Args:
        config: the experiment.
        manifests: the data, by split.
        world_size: all ranks.
        scaled: options that the scale changed.
        fits_batch: see :class:`~dlio_torch.config.compose.Composed`.
    """
    if config.dataset.path is None:
        return config
    if fits_batch:
        config = _fit_batch(config, manifests, world_size)
    if "train.steps" in scaled:
        config = _fit_steps(config, manifests, world_size)
    return config


def _fit_steps(config: Config, manifests: Mapping[str, Manifest], world_size: int) -> Config:
    """Limit the number of steps that the scale chose to the steps that the data allow."""
    access, train = config.access, config.train
    endless = access.repeat or access.pattern == "lanes" or access.order == "random_blocks"
    if endless:
        return config
    everything = replace(config, train=replace(train, steps=0))
    given = len(train_sampler(everything, manifests["train"], 0, world_size))
    return replace(config, train=replace(train, steps=min(train.steps, given)))


def _fit_batch(config: Config, manifests: Mapping[str, Manifest], world_size: int) -> Config:
    """Limit the batch size of the shipped recipe ``custom``, which cannot know the data, to the samples there are.

    A batch of all ranks (``train.batch_scope=global``) becomes a multiple of the number of ranks.
    """
    train = config.train
    unit, ranks = (world_size, 1) if train.batch_scope == "global" else (1, world_size)
    size = min(train.batch_size, manifests["train"].num_samples // ranks)
    size = max(unit, size - size % unit)
    return replace(config, train=replace(train, batch_size=size))


def left_over(config: Config, manifest: Manifest, plan: BatchSampler | PipePlan | HeldPlan, world_size: int) -> str:
    """A line about samples of existing data that no batch contains and no epoch reads; empty: there are none."""
    access, samples = config.access, manifest.num_samples
    is_one_pass = not config.train.steps and not access.repeat and access.hold_steps == 1 and access.pattern != "lanes"
    is_one_pass = is_one_pass and access.order in ("sequential", "shuffled") and access.partition != "none"
    unread = samples - len(plan) * plan.batch_size * world_size if is_one_pass and config.dataset.path else 0
    if unread <= 0:
        return ""
    return (
        f"data: an epoch does not read {unread} of {samples} samples, which do not fill a batch of each rank; "
        "access.tail=keep delivers them in a smaller batch, access.tail=pad completes it from the start of the order"
    )


def eval_sampler(
    config: Config, manifest: Manifest, rank: int, world_size: int, batch_size: int
) -> BatchSampler | PipePlan | None:
    """The order in which ``rank`` reads evaluation samples; ``None`` if the rank does not evaluate.

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
        stream = StreamSpec(
            partition=access.partition,  # type: ignore[arg-type]  # validate() has refused others
            shard=access.shard,
            whole=access.unit == "file",
            block=access.block_samples,
            interleave=access.interleave,
            interleave_prefetch=access.interleave_prefetch,
            interleave_buffer=access.interleave_buffer,
            pool=access.shuffle_pool,
            repeat=access.repeat and not evaluates,
            tail=access.tail,
            parts=parts,
            **common,
        )
        return StreamPlan(manifest.counts(), stream)
    if access.pattern == "lanes":
        lanes = LanesSpec(
            rows=access.lane_rows,
            random_steps=access.lane_random_steps,
            probe=access.lane_probe,
            parts=parts,
            **common,
        )
        return LanesPlan(manifest.num_samples, lanes, RowsOf(fmt, manifest.first_sample) if fmt is not None else None)
    spec = SamplerSpec(partition=access.partition, stride=access.stride, tail=access.tail, **common)
    if access.partition == "files":
        return BatchSampler(spec, file_counts=manifest.counts())
    return BatchSampler(spec, num_samples=manifest.num_samples)
