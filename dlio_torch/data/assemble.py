"""Puts sampler, dataset and loader of one rank together from the configuration."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.schema import Config
from dlio_torch.data.datasets import CatchingDataset, InMemoryDataset, SampleDataset
from dlio_torch.data.layout import Manifest
from dlio_torch.data.loader import BatchLoader
from dlio_torch.data.sampler import BatchSampler
from dlio_torch.formats.base import Format
from dlio_torch.trace.spans import Recorder


@dataclass(frozen=True)
class Loaders:
    """What feeds the trainer of one rank.

    Attributes:
        train: training batches.
        sampler: the order of the training samples.
        eval: evaluation batches; ``None`` if this rank evaluates nothing.
        load_s: seconds that reading the share into memory took; ``None`` if it is read on the fly.
        load_bytes: bytes of the share in memory; ``None`` likewise.
    """

    train: BatchLoader
    sampler: BatchSampler
    eval: BatchLoader | None
    load_s: float | None
    load_bytes: int | None

    def close(self) -> None:
        """End workers and threads."""
        self.train.close()
        if self.eval is not None:
            self.eval.close()


def train_sampler(config: Config, manifest: Manifest, rank: int, world_size: int) -> BatchSampler:
    """The order in which ``rank`` reads training samples.

    Raises:
        ConfigError: the batch or the steps do not fit the data.
    """
    return _sampler(config, manifest, rank, world_size)


def eval_sampler(
    config: Config, manifest: Manifest, rank: int, world_size: int, batch_size: int
) -> BatchSampler | None:
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
    return _sampler(config, manifest, rank, world_size, eval_batch=train.eval_batch_size or batch_size)


def _sampler(
    config: Config, manifest: Manifest, rank: int, world_size: int, eval_batch: int | None = None
) -> BatchSampler:
    access, train = config.access, config.train
    by_file = access.partition == "files"
    evaluates = eval_batch is not None
    return BatchSampler(
        num_samples=None if by_file else manifest.num_samples,
        file_counts=manifest.counts() if by_file else None,
        order=access.order,
        partition=access.partition,
        stride=access.stride,
        tail=access.tail,
        batch_size=train.batch_size if eval_batch is None else eval_batch,
        batch_scope="rank" if evaluates else train.batch_scope,
        seed=config.seed,
        rank=rank,
        world_size=world_size,
        steps=train.eval_steps if evaluates else train.steps,
        batch_key="train.eval_batch_size" if evaluates else "train.batch_size",
        steps_key="train.eval_steps" if evaluates else "train.steps",
    )


def assemble(
    config: Config, fmt: Format, manifests: dict[str, Manifest], recorder: Recorder, rank: int, world_size: int
) -> Loaders:
    """Loaders of one rank; reads its share into memory first where ``loader.in_memory`` asks for that."""
    dataset = _dataset(config, fmt, manifests["train"], recorder)
    sampler = train_sampler(config, manifests["train"], rank, world_size)
    source: SampleDataset | InMemoryDataset = dataset
    load_s = load_bytes = None
    if config.loader.in_memory:
        began = time.perf_counter()
        source = InMemoryDataset(dataset, _wanted(sampler, config.train.epochs))
        load_s, load_bytes = time.perf_counter() - began, source.nbytes()
    evaluation = None
    if "eval" in manifests:
        order = eval_sampler(config, manifests["eval"], rank, world_size, sampler.batch_size)
        if order is not None:
            eval_dataset = CatchingDataset(_dataset(config, fmt, manifests["eval"], recorder))
            evaluation = BatchLoader(config.loader, eval_dataset, order)
    train = BatchLoader(config.loader, CatchingDataset(source), sampler)
    return Loaders(train, sampler, evaluation, load_s, load_bytes)


def _dataset(config: Config, fmt: Format, manifest: Manifest, recorder: Recorder) -> SampleDataset:
    return SampleDataset(
        fmt,
        manifest,
        recorder,
        unit=config.access.unit,
        preprocess=Preprocess(config.compute) if config.compute.preprocess_s > 0 else None,
        max_open_files=config.loader.max_open_files,
        verify=config.verify,
    )


def _wanted(sampler: BatchSampler, epochs: int) -> list[int]:
    """Every sample that this rank will ask for, by number: what is read into memory."""
    wanted = np.zeros(sampler.num_samples, bool)
    for epoch in range(epochs):
        wanted |= sampler.expected_counts(epoch) > 0
    return [int(index) for index in np.flatnonzero(wanted)]
