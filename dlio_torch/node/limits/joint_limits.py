"""Limits of the data path while all of it is in use: storage, decoding, transfer and copies at the same time.

Decoding needs cached files and the storage evicted ones, so each gets a half of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlio_torch.environment.cores import whole_cores
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
from dlio_torch.node.limits.storage_limits import evict_files, with_bytes
from dlio_torch.node.limits.transfer_limit import NAME as TRANSFER
from dlio_torch.node.limits.transfer_limit import RESOURCE as TRANSFERRING
from dlio_torch.node.limits.transfer_limit import transfer_method, transfer_task

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
    cached, stored, why = _halves(recipe)
    refused: list[NodeLimit] = []
    groups = list(_groups(cached, gpus))
    if stored is not None:
        try:
            groups.insert(0, _storage(stored))
        except DlioError as error:
            why = str(error)
    if why:
        refused.append(refused_limit(*STORAGE, why, alone=False))
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
            rate = with_bytes(Rate.of(work), recipe) if group.name == STORAGE[0] else Rate.of(work)
            yield measured(group.name, group.resource, rate, group.method, alone=False)
        except DlioError as error:
            yield refused_limit(group.name, group.resource, str(error), alone=False)


def _groups(recipe: MeasuredRecipe, gpus: int) -> Iterator[JointTasks]:
    yield JointTasks(DECODE, DECODING, decode_method(recipe), decode_tasks(recipe))
    yield JointTasks(TRANSFER, TRANSFERRING, transfer_method(recipe), [transfer_task(recipe, whole_cores())])
    if gpus:
        for name, resource in COPIES.items():
            yield JointTasks(name, resource, copy_method(recipe, name, gpus), copy_tasks(recipe, name, gpus))


def _storage(recipe: MeasuredRecipe) -> JointTasks:
    """The tasks that read evicted files once.

    Raises:
        DlioError: they stay in the page cache.
    """
    reads = RecipeReads.of(recipe, recipe.stored_bytes)
    evict_files(reads, 0)
    return JointTasks(*STORAGE, f"{reads}, evicted before", reads.tasks(0))


def _halves(recipe: MeasuredRecipe) -> tuple[MeasuredRecipe, MeasuredRecipe | None, str]:
    """The recipe for decoding and the recipe for the storage; the latter may be absent, for a reason."""
    manifest = recipe.manifest
    if not recipe.format.needs_files:
        return recipe, None, NO_FILES
    middle = manifest.num_files // 2
    if not middle:
        return recipe, None, "all samples lie in one file, which decoding keeps in the page cache"
    try:
        cached = _part(recipe, range(middle))
        stored = _part(recipe, range(middle, manifest.num_files))
    except PreconditionError as error:
        return recipe, None, str(error)
    return cached, stored, ""


def _part(recipe: MeasuredRecipe, files: range) -> MeasuredRecipe:
    manifest = recipe.manifest.part(files)
    if recipe.reads_batches and manifest.num_samples < recipe.batch_size:
        raise PreconditionError("half of the files hold less than a batch, so that decoding needs all of them")
    size = round(recipe.stored_bytes * manifest.num_samples / recipe.manifest.num_samples)
    return replace(recipe, manifest=manifest, stored_bytes=size)
