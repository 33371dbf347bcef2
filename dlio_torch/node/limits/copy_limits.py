"""Limits of copies from host to device: all visible GPUs at the same time, from pageable and from pinned memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.node.limits.decode_limit import amount_of, epoch_batches
from dlio_torch.node.limits.limit_record import NO_GPU, measured, refused_limit
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, Rate, Task, run_tasks
from dlio_torch.train.to_device import DeviceCopies, use_gpu
from dlio_torch.units import counted

RESOURCES = {"copy_pageable": "copies from pageable memory", "copy_pinned": "copies from pinned memory"}
_WARM_UP = 3  # copies until torch's allocator has the memory of two batches


def copy_limit(recipe: MeasuredRecipe, name: str, gpus: int) -> NodeLimit:
    """Measure copies of a batch to each GPU.

    Args:
        recipe: the recipe.
        name: ``copy_pageable`` or ``copy_pinned``.
        gpus: number of visible GPUs.
    """
    if not gpus:
        return refused_limit(name, RESOURCES[name], NO_GPU)
    try:
        rate = Rate.of(run_tasks(copy_tasks(recipe, name, gpus), recipe.seconds))
    except DlioError as error:
        return refused_limit(name, RESOURCES[name], str(error))
    return measured(name, RESOURCES[name], rate, copy_method(recipe, name, gpus))


def copy_method(recipe: MeasuredRecipe, name: str, gpus: int) -> str:
    """The sentence of the measurement."""
    batch = f"a batch of {counted(recipe.batch_size, 'sample')}"
    memory = name.removeprefix("copy_")
    return f"{batch} copied from {memory} memory again and again to {counted(gpus, 'GPU')}, timed by CUDA events"


def copy_tasks(recipe: MeasuredRecipe, name: str, gpus: int) -> Sequence[Task]:
    """Tasks of one process for each GPU, as each rank is one."""
    return [partial(_copy, recipe, name == "copy_pinned", gpu) for gpu in range(gpus)]


def _copy(recipe: MeasuredRecipe, pinned: bool, gpu: int) -> Iterator[Amount]:
    batch = _first_batch(recipe)
    device = use_gpu(gpu)
    if pinned:
        batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
    copies = DeviceCopies(device)
    for _ in range(_WARM_UP):
        _timed(copies, batch)
    yield Amount()
    while True:
        yield amount_of(batch, _timed(copies, batch))


def _timed(copies: DeviceCopies, batch: Batch) -> float:
    """Copies a batch; returns the seconds between two events on its stream."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    begin.record()
    copies.start(batch)
    end.record()
    copies.finish()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _first_batch(recipe: MeasuredRecipe) -> Batch:
    loaders = recipe.loaders()
    try:
        return next(epoch_batches(loaders, 0))
    finally:
        loaders.close()
