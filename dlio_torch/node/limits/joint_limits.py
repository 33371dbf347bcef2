"""Limits of the data path while all of it is in use: storage, decoding, transfer and copies at the same time.

Decoding needs cached files and the storage evicted ones, so each gets a half of the files, or of the batches of a
single file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.node.limits.copy_limits import RESOURCES as COPIES
from dlio_torch.node.limits.copy_limits import copy_method, copy_tasks
from dlio_torch.node.limits.decode_limit import NAME as DECODE
from dlio_torch.node.limits.decode_limit import RESOURCE as DECODING
from dlio_torch.node.limits.decode_limit import decode_method, decode_tasks
from dlio_torch.node.limits.limit_record import NO_FILES, NO_GPU, measured, refused_limit
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Rate, Task, run_tasks
from dlio_torch.node.limits.recipe_reads import RecipeReads
from dlio_torch.node.limits.storage_limits import RESOURCES as STORAGE_RESOURCES
from dlio_torch.node.limits.storage_limits import device_share, evict_files, require_from_device, with_bytes
from dlio_torch.node.limits.transfer_limit import NAME as TRANSFER
from dlio_torch.node.limits.transfer_limit import RESOURCE as TRANSFERRING
from dlio_torch.node.limits.transfer_limit import most_workers, transfer_method, transfer_task

_LEAST_FROM_DEVICE = 0.9  # of the bytes, so that the reads of a file that is partly cached count as cold
STORAGE = ("storage_recipe", STORAGE_RESOURCES["storage_recipe"])


@dataclass(frozen=True)
class JointTasks:
    """Tasks of one resource.

    Attributes:
        name: of the limit.
        resource: in words.
        method: the sentence of the measurement.
        tasks: run at the same time as those of the other resources.
    """

    name: str
    resource: str
    method: str
    tasks: Sequence[Task]


def joint_limits(recipe: MeasuredRecipe, gpus: int) -> list[NodeLimit]:
    """Measure all resources of the data path at the same time.

    Args:
        recipe: the recipe.
        gpus: number of visible GPUs.
    """
    cached, refused = recipe, list[NodeLimit]()
    groups: list[JointTasks] = []
    try:
        cached, reads = _halves(recipe)
        evict_files(reads, 0)
        groups.append(JointTasks(*STORAGE, f"{reads}, evicted before", reads.tasks(0)))
    except DlioError as error:
        refused.append(refused_limit(*STORAGE, str(error), alone=False))
    groups += _groups(cached, gpus)
    if not gpus:
        refused += [refused_limit(name, resource, NO_GPU, alone=False) for name, resource in COPIES.items()]
    return [*_measured(recipe, groups), *refused]


def _measured(recipe: MeasuredRecipe, groups: Sequence[JointTasks]) -> Iterator[NodeLimit]:
    try:
        progress = iter(run_tasks([task for group in groups for task in group.tasks], recipe.seconds))
    except DlioError as error:
        for group in groups:
            yield refused_limit(group.name, group.resource, str(error), alone=False)
        return
    for group in groups:
        work = [next(progress) for _ in group.tasks]
        try:
            yield _limit(recipe, group, Rate.of(work))
        except DlioError as error:
            yield refused_limit(group.name, group.resource, str(error), alone=False)


def _limit(recipe: MeasuredRecipe, group: JointTasks, rate: Rate) -> NodeLimit:
    method = group.method
    if group.name == STORAGE[0]:
        rate = with_bytes(rate, recipe)
        method += device_share(rate)
        require_from_device(rate, recipe)
        if recipe.manifest.num_files == 1 and rate.device_bytes < _LEAST_FROM_DEVICE * rate.bytes:
            raise PreconditionError("decoding and the storage share a file, and reads of it came from the page cache")
    if group.name in (STORAGE[0], DECODE):
        rate = rate.in_pieces(recipe.pieces)
    return measured(group.name, group.resource, rate, method, alone=False)


def _groups(recipe: MeasuredRecipe, gpus: int) -> Iterator[JointTasks]:
    yield JointTasks(DECODE, DECODING, decode_method(recipe), decode_tasks(recipe))
    yield JointTasks(TRANSFER, TRANSFERRING, transfer_method(recipe), [transfer_task(recipe, most_workers(recipe))])
    if gpus:
        for name, resource in COPIES.items():
            yield JointTasks(name, resource, copy_method(recipe, name, gpus), copy_tasks(recipe, name, gpus))


def _halves(recipe: MeasuredRecipe) -> tuple[MeasuredRecipe, RecipeReads]:
    """The recipe for decoding, and the reads for the storage, of other samples.

    Raises:
        DlioError: the data cannot be divided.
    """
    if not recipe.format.needs_files:
        raise PreconditionError(NO_FILES)
    files = recipe.manifest.num_files
    if files > 1:
        stored = _part(recipe, range(files // 2, files))
        return _part(recipe, range(files // 2)), RecipeReads.of(stored, stored.stored_bytes)
    reads = RecipeReads.of(recipe, recipe.stored_bytes)
    if len(reads.steps) < 2:
        raise PreconditionError("the only file holds one batch or is streamed, and decoding keeps it in the page cache")
    return replace(recipe, most_steps=len(reads.steps) // 2), reads.second_half()


def _part(recipe: MeasuredRecipe, files: range) -> MeasuredRecipe:
    manifest = recipe.manifest.part(files)
    if recipe.reads_batches and manifest.num_samples < recipe.reading.train.batch_size:
        raise PreconditionError("half of the files hold less than a batch, so that decoding needs all of them")
    size = round(recipe.stored_bytes * manifest.num_samples / recipe.manifest.num_samples)
    return replace(recipe, manifest=manifest, stored_bytes=size)
