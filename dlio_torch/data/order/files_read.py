"""Computation of the files that given ranks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.formats.core.format import Format

Mask = npt.NDArray[np.bool_]


def files_read(
    config: Config,
    fmt: Format,
    manifests: Mapping[str, Manifest],
    ranks: Iterable[int],
    world_size: int,
    epochs: range,
    known: Mapping[int, Plan] = MappingProxyType({}),
) -> Iterator[tuple[Manifest, Mask]]:
    """Mask over the files of each manifest that these ranks read; a manifest used for two splits appears once.

    Args:
        config: the experiment.
        fmt: its format.
        manifests: ``train`` and, where there is one, ``eval``.
        ranks: the readers.
        world_size: all ranks.
        epochs: the epochs, from 0.
        known: plans of training samples that exist already, by rank; others are made here.
    """
    ranks = list(ranks)
    train = manifests["train"]
    evaluates = bool(config.train.eval_every_epochs or config.train.eval_every_steps)
    if config.train.eval_ranks == "first":
        evaluates &= 0 in ranks
    evaluation = manifests.get("eval") if evaluates else None
    reads_own_files = config.access.partition in ("files", "slices") and config.access.pattern != "lanes"
    # A stream also opens files whose samples wait in its pool when the epoch ends.  If files are dealt again in each
    # pass, which these are depends on its workers.  Blocks of a file are dealt to all ranks.
    stream = config.access.pattern == "stream"
    shared = config.access.block_samples or config.access.shard == "after_shuffle"
    whole = not reads_own_files or (stream and bool(shared))
    mask = np.full(train.num_files, whole or evaluation is train)
    if not mask.all():
        for rank in ranks:
            if stream:
                mask[rank::world_size] = True
                continue
            plan = known[rank] if rank in known else train_sampler(config, train, rank, world_size, fmt)
            for epoch in epochs:
                samples = plan.expected(epoch)
                mask[train.locate_all(samples)[0]] = True
    yield train, mask
    if evaluation is not None and evaluation is not train:
        yield evaluation, np.ones(evaluation.num_files, bool)
