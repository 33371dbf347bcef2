"""Limit of the transfer of batches from worker processes of a DataLoader to the trainer's process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.environment.cores import whole_cores
from dlio_torch.errors import DlioError
from dlio_torch.files.locked_folder import SHARED_MEMORY
from dlio_torch.node.limits.decode_limit import amount_of, epoch_batches
from dlio_torch.node.limits.limit_record import measured, refused_limit
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, Rate, Task, run_tasks
from dlio_torch.units import counted, format_number

NAME, RESOURCE = "worker_transfer", "the transfer from loader workers"
_STEPS = 1 << 20  # an epoch that no measurement ends
_KEPT_BATCHES = 8
_PER_WORKER = 1  # batches of each worker that are measured at least, so that a long one counts with its time


def transfer_limit(recipe: MeasuredRecipe) -> NodeLimit:
    """Measure the transfer with one worker, and with one for each usable core; the latter is the limit."""
    workers = most_workers(recipe)
    try:
        single = Rate.of(run_tasks([transfer_task(recipe, 1)], recipe.seconds))
        rate = single if workers == 1 else Rate.of(run_tasks([transfer_task(recipe, workers)], recipe.seconds))
    except DlioError as error:
        return refused_limit(NAME, RESOURCE, str(error))
    samples_per_s = f"{format_number(single.samples_per_s)} samples/s with one worker"
    return measured(NAME, RESOURCE, rate, f"{transfer_method(recipe)}; {samples_per_s}")


def most_workers(recipe: MeasuredRecipe) -> int:
    """One worker for each usable core, as far as shared memory has space for their batches."""
    batch_bytes = max(1.0, recipe.batch_size * recipe.sample_bytes)
    held = LoaderConfig().prefetched + 1  # batches of a worker: those that wait, and the next one
    try:
        space = shutil.disk_usage(SHARED_MEMORY).free / 2
    except OSError:
        return whole_cores()
    return max(1, min(whole_cores(), int(space // (batch_bytes * held))))


def transfer_method(recipe: MeasuredRecipe) -> str:
    """The sentence of the measurement."""
    batch = f"batches of {counted(recipe.batch_size, 'sample')}"
    workers = counted(most_workers(recipe), "worker")
    return f"{batch} copied from samples in memory and handed to one process by {workers} of torch's DataLoader"


def transfer_task(recipe: MeasuredRecipe, workers: int) -> Task:
    """Task of a process that takes batches from workers which copy samples from memory."""
    return partial(_transfer, recipe, workers)


def _transfer(recipe: MeasuredRecipe, workers: int) -> Iterator[Amount]:
    config = _endless(recipe.config, workers)
    loaders = recipe.loaders(config)
    batches = epoch_batches(loaders, 0)
    try:
        ready = workers * config.loader.prefetched
        for _ in range(ready):
            next(batches)
        yield Amount()
        for _ in range(ready):  # they were made while this process waited for the others, and count for nothing
            next(batches)
        while amounts := [amount_of(batch) for batch in islice(batches, _PER_WORKER * workers)]:
            yield Amount(sum(amount.samples for amount in amounts), sum(amount.bytes for amount in amounts))
    finally:
        loaders.close()


def _endless(config: Config, workers: int) -> Config:
    """The experiment with kept samples and an epoch without an end."""
    access, compute = config.access, replace(config.compute, preprocess_s=0.0)
    if access.pattern == "samples":
        access = replace(access, order="random_blocks", partition="none", tail="drop")
    elif access.pattern == "stream":
        access = replace(access, repeat=True)
    loader = replace(
        LoaderConfig(), num_workers=workers, persistent_workers=True, max_open_files=config.loader.max_open_files,
        timeout_s=config.loader.timeout_s, replay="samples", replay_batches=_KEPT_BATCHES,
    )  # fmt: skip
    train = replace(config.train, steps=_STEPS)
    return replace(config, access=access, compute=compute, loader=loader, train=train)
