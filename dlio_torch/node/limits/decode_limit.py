"""Limit of decoding: samples that processes on all usable cores make of files in the page cache."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial

from dlio_torch.data.engines.assemble import Loaders
from dlio_torch.environment.cores import whole_cores
from dlio_torch.environment.memory_limits import cache_room
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import INDEX, Batch, batch_bytes
from dlio_torch.node.limits.limit_record import measured, refused_limit, require_cached
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, Rate, Task, run_tasks
from dlio_torch.units import counted

NAME, RESOURCE = "decode", "decoding"
_ROOM_PART = 4  # of the memory for files, the batches of all processes take at most one part in so many


def decode_limit(recipe: MeasuredRecipe) -> NodeLimit:
    """Measure decoding, with the preprocessing of the recipe."""
    try:
        rate = Rate.of(run_tasks(decode_tasks(recipe), recipe.seconds))
        require_cached(rate)
    except DlioError as error:
        return refused_limit(NAME, RESOURCE, str(error))
    return measured(NAME, RESOURCE, rate.in_pieces(recipe.pieces), decode_method(recipe))


def decode_method(recipe: MeasuredRecipe) -> str:
    """The sentence of the measurement."""
    processes = counted(whole_cores(), "process", "processes")
    work = "read, decoded, preprocessed" if recipe.config.compute.preprocess_s > 0 else "read, decoded"
    reader = "the engine of the recipe" if recipe.reads_ranges else "the format's library"
    batch = f"batches of {counted(recipe.reading.train.batch_size, 'sample')}"
    return f"{batch} {work} and collated by {reader} in {processes}, all data cached"


def decode_tasks(recipe: MeasuredRecipe) -> Sequence[Task]:
    """Tasks of one process for each usable core."""
    return [partial(_decode, recipe)] * whole_cores()


def _decode(recipe: MeasuredRecipe) -> Iterator[Amount]:
    """Reads the same batches again and again, after they were read once."""
    loaders = recipe.loaders(recipe.reading_of(_batches_read_once(recipe)))
    try:
        yield Amount()
        while True:
            for batch in epoch_batches(loaders, 0):
                yield amount_of(batch)
    finally:
        loaders.close()


def _batches_read_once(recipe: MeasuredRecipe) -> int:
    """Number of batches that this process has read: all, or as many as time and memory allow."""
    loaders = recipe.loaders(recipe.reading)
    most_bytes = (math.inf if (room := cache_room()) is None else room) / _ROOM_PART / whole_cores()
    deadline, count, size = time.monotonic() + recipe.seconds, 0, 0.0
    try:
        for batch in epoch_batches(loaders, 0):
            count, size = count + 1, size + batch_bytes(batch)
            if time.monotonic() >= deadline or size >= most_bytes or count == recipe.most_steps:
                break
        return count
    finally:
        loaders.close()


def epoch_batches(loaders: Loaders, epoch: int) -> Iterator[Batch]:
    """Yields the batches of an epoch, and lets reader threads go on after each."""
    batches = loaders.train.epoch(epoch)
    for _ in range(len(loaders.train)):
        yield next(batches)
        batches.read_on()


def amount_of(batch: Batch, seconds: float | None = None) -> Amount:
    """Samples and bytes of a batch, and the time that it took if it was measured."""
    return Amount(len(batch[INDEX]), batch_bytes(batch), seconds)
