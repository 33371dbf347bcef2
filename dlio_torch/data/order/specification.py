"""Parameter classes of the samplers and plans of a rank, with defaults.

Keys of the configuration are named where they differ from the attribute's own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.errors import ConfigError

Order = Literal["sequential", "shuffled", "random_blocks", "strided"]
Partition = Literal["batches", "slices", "files", "none"]
Tail = Literal["drop", "pad", "keep"]
BatchScope = Literal["rank", "global"]


@dataclass(frozen=True, kw_only=True)
class BatchSpec:
    """Parameters of a rank's batches that do not depend on the order.

    Attributes:
        batch_size: samples of a batch, of one rank or of all ranks together.
        batch_scope: what ``batch_size`` counts.
        steps: steps of an epoch; 0: as many as the data give.
        seed: seed of every order, at least 0.
        rank: number of this process, from 0.
        world_size: number of processes.
        batch_key: configuration key of ``batch_size``, for messages.
        steps_key: configuration key of ``steps``, for messages.

    Raises:
        ValueError: there is no such rank.
    """

    batch_size: int
    batch_scope: BatchScope = "rank"
    steps: int = 0
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    batch_key: str = "train.batch_size"
    steps_key: str = "train.steps"

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} must be below world_size {self.world_size}")

    def rank_batch_size(self) -> int:
        """Number of samples in one rank's batch.

        Raises:
            ConfigError: there are none, or a batch of all ranks cannot be cut into equal ones.
        """
        return rank_batch(self.batch_size, self.batch_scope, self.world_size, self.batch_key)


@dataclass(frozen=True, kw_only=True)
class SamplerSpec(BatchSpec):
    """Parameters of batches of sample numbers; see :class:`~dlio_torch.data.order.sampler.BatchSampler`.

    Attributes:
        order: how the samples of a share follow each other; ``access.order``.
        partition: which share of the samples a rank has; ``access.partition``.
        stride: distance of consecutive reads of ``order=strided``, at least 1; ``access.stride``.
        tail: what becomes of samples that fill no batch; ``access.tail``.
    """

    order: Order = "sequential"
    partition: Partition = "batches"
    stride: int = 1
    tail: Tail = "drop"


@dataclass(frozen=True, kw_only=True)
class StreamSpec(BatchSpec):
    """Parameters of streams of whole files; see :class:`~dlio_torch.data.order.stream_plan.StreamPlan`.

    Attributes:
        order: ``sequential``, or ``shuffled``: files, and with ``whole`` the samples inside a file as well.
        partition: whether each rank reads ``files`` of its own, or all (``none``).
        shard: whether files are dealt to ranks before they are shuffled or after it.
        whole: files are read whole; ``access.unit=file``.
        block: samples of the blocks that take the place of files, each read whole; 0: files; ``access.block_samples``.
        interleave: files that a part reads in turn.
        interleave_prefetch: files that a part has begun before their turn; with ``interleave_buffer``.
        interleave_buffer: records that a thread of each file keeps ready; 0: no such threads.
        pool: samples in the shuffle pool of a part; 0: no pool; ``access.shuffle_pool``.
        repeat: passes over the files follow each other through the epochs.
        tail: what becomes of samples that fill no batch.
        parts: loader workers of a rank, at least 1.

    Raises:
        ValueError: ``after_shuffle`` without a shuffle.
    """

    order: Literal["sequential", "shuffled"] = "sequential"
    partition: Literal["files", "none"] = "files"
    shard: Literal["before_shuffle", "after_shuffle"] = "before_shuffle"
    whole: bool = False
    block: int = 0
    interleave: int = 1
    interleave_prefetch: int = 0
    interleave_buffer: int = 0
    pool: int = 0
    repeat: bool = False
    tail: Tail = "drop"
    parts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shard == "after_shuffle" and self.order != "shuffled":
            raise ValueError("shard='after_shuffle' needs order='shuffled'")


@dataclass(frozen=True, kw_only=True)
class LanesSpec(BatchSpec):
    """Parameters of lanes that cut variable-length samples; see :class:`~dlio_torch.data.order.lanes_plan.LanesPlan`.

    A batch is a step of all lanes of a rank: ``batch_size`` counts lanes.

    Attributes:
        rows: rows that a lane takes from its sample in a step; ``access.lane_rows``.
        order: ``shuffled``, or ``sequential`` for the order of sample numbers.
        random_steps: steps, from the first one on, in which a lane cuts a new sample at a random row;
            ``access.lane_random_steps``.
        probe: sample 0 is read once before the first batch, for its shape; ``access.lane_probe``.
        parts: loader workers of a rank, at least 1.
    """

    rows: int
    order: Literal["sequential", "shuffled"] = "shuffled"
    random_steps: int = 0
    probe: bool = False
    parts: int = 1


def rank_batch(batch_size: int, scope: BatchScope, world_size: int, key: str) -> int:
    """Number of samples in one rank's batch; raises ConfigError if a global batch cannot be cut into equal ones."""
    if batch_size < 1:
        raise ConfigError(f"{key}={batch_size} must be at least 1", hint=f"set {key} to 1 or more")
    if scope == "rank":
        return batch_size
    if batch_size % world_size:
        below = batch_size // world_size * world_size
        near = " or ".join(str(n) for n in (below, below + world_size) if n)
        raise ConfigError(
            f"{key}={batch_size} is the batch of all ranks (train.batch_scope=global) and is not divisible by "
            f"{world_size} ranks",
            hint=f"set {key}={near}, or train.batch_scope=rank",
        )
    return batch_size // world_size
