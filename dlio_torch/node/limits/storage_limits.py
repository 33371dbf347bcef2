"""Limits of the storage and of the page cache: large reads, and the reads of the recipe, cold and warm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.environment.memory_limits import cache_room
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.node.limits.limit_record import NO_FILES, measured, refused_limit, require_cached
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Rate, run_tasks
from dlio_torch.node.limits.recipe_reads import RecipeReads
from dlio_torch.storage.cache_state import CacheKeeper, thinned
from dlio_torch.storage.local.device_limits import ReadWorkload
from dlio_torch.storage.local.stored_limits import load_or_measure
from dlio_torch.units import percent

RESOURCES = {"storage_large": "storage", "storage_recipe": "storage", "page_cache": "the page cache"}
_PASSES = 5
_UNKNOWN_BYTES_PER_S = 1 << 30  # of a storage whose rate could not be measured
_LEAST_CALLED = 1 / 16  # of the stored bytes; fewer are those of headers, and the samples come through a mapping
_LEAST_FROM_DEVICE = 1 / 3  # of the bytes; some applications read each file twice
_ROOM_PART = 4  # of the memory for files, the data of a measurement take at most one part in so many


@dataclass
class ListedFiles:
    """Files whose page cache is prepared, by their paths."""

    paths: Sequence[str]
    bytes: int

    def __len__(self) -> int:
        return len(self.paths)

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """See :class:`~dlio_torch.storage.cache_state.CachedFiles`."""
        return (self.paths[number] for number in thinned(range(first, len(self.paths), step), most))


def storage_limits(recipe: MeasuredRecipe, note: Callable[[str], None]) -> list[NodeLimit]:
    """Measure ``storage_large``, ``storage_recipe`` and ``page_cache``.

    Args:
        recipe: the recipe.
        note: takes the name of each limit before it is measured.
    """
    if not recipe.format.needs_files:
        return [refused_limit(name, resource, NO_FILES) for name, resource in RESOURCES.items()]
    note("storage_large")
    large = _large_reads(recipe)
    room = cache_room()
    expected = 2 * (large.bytes_per_s or _UNKNOWN_BYTES_PER_S) * recipe.seconds
    most_bytes = expected if room is None else min(expected, room / _ROOM_PART)
    note("storage_recipe")
    cold = _cold_reads(recipe, most_bytes)
    note("page_cache")
    warm = _warm_reads(recipe, most_bytes)
    return [_in_samples(large, [cold, warm], recipe), cold, warm]


def _large_reads(recipe: MeasuredRecipe) -> NodeLimit:
    name, workload = "storage_large", ReadWorkload.most("cold")
    try:
        [limit] = load_or_measure(
            recipe.folder, [workload], seconds=recipe.seconds, size_bytes=recipe.config.storage.limits_bytes
        )
    except PreconditionError as error:
        return refused_limit(name, RESOURCES[name], str(error))
    method = f"{limit.request} ({limit.reader})"
    return NodeLimit(name, RESOURCES[name], None, limit.bytes_per_s, True, method, limit.seconds)


def _in_samples(large: NodeLimit, reads: Sequence[NodeLimit], recipe: MeasuredRecipe) -> NodeLimit:
    """The limit of large reads with samples per second, from the bytes that the recipe's reads of a sample take."""
    if large.bytes_per_s is None:
        return large
    sizes = [read.bytes_per_s / read.samples_per_s for read in reads if read.bytes_per_s and read.samples_per_s]
    return replace(
        large, samples_per_s=large.bytes_per_s / next(iter(sizes), recipe.stored_sample_bytes / recipe.pieces)
    )


def _cold_reads(recipe: MeasuredRecipe, most_bytes: float) -> NodeLimit:
    """Measure the recipe's reads of its files, evicted before each pass of at most about ``most_bytes``."""
    name = "storage_recipe"
    try:
        reads = RecipeReads.of(recipe, most_bytes)
        rates, shares = _cold_passes(reads, recipe.seconds)
        rate = with_bytes(Rate.in_sequence(rates), recipe)
        require_from_device(rate, recipe)
    except DlioError as error:
        return refused_limit(name, RESOURCES[name], str(error))
    method = f"{reads}; {percent(max(shares))} of the data were cached before{device_share(rate)}"
    return measured(name, RESOURCES[name], rate.in_pieces(recipe.pieces), method)


def _cold_passes(reads: RecipeReads, seconds: float) -> tuple[list[Rate], list[float]]:
    """Rates of passes over evicted files, as many as fit into the time, and the cached share before each."""
    rates: list[Rate] = []
    shares: list[float] = []
    left = seconds
    while left > 0 and len(rates) < _PASSES:
        shares.append(evict_files(reads, len(rates)))
        rates.append(Rate.of(run_tasks(reads.tasks(len(rates)), left)))
        left -= rates[-1].seconds
    return rates, shares


def evict_files(reads: RecipeReads, epoch: int) -> float:
    """Evict the files of an epoch; returns the share of their data that is still cached.

    Raises:
        PreconditionError: they stay in the page cache, or the file system does not report what is cached.
    """
    paths = reads.files(epoch)
    state = CacheKeeper("cold", ListedFiles(paths, reads.recipe.stored_bytes), SingleCommunicator()).prepare(epoch + 1)
    if not state.reached or state.cached_share is None:
        raise PreconditionError(f"the data cannot be read cold: {state.why}")
    return state.cached_share


def _warm_reads(recipe: MeasuredRecipe, most_bytes: float) -> NodeLimit:
    """Measure the same reads again and again, after all of them were read once."""
    name = "page_cache"
    try:
        reads = RecipeReads.of(recipe, most_bytes)
        rate = with_bytes(Rate.of(run_tasks(reads.tasks(0, again=True), recipe.seconds)), recipe)
        require_cached(rate)
    except DlioError as error:
        return refused_limit(name, RESOURCES[name], str(error))
    return measured(name, RESOURCES[name], rate.in_pieces(recipe.pieces), f"{reads}; all of them were read before")


def require_from_device(rate: Rate, recipe: MeasuredRecipe) -> None:
    """Raise if most bytes came from the page cache all the same, such as those that samples share.

    Raises:
        PreconditionError: they did.
    """
    is_counted = rate.device_bytes > 0 or _is_block_device(recipe.folder)
    share = rate.device_bytes / rate.bytes
    if is_counted and share < _LEAST_FROM_DEVICE:
        raise PreconditionError(
            f"only {percent(share)} of the bytes came from the device: the reads find in the page cache what earlier "
            "reads of this measurement left there",
            hint="use more data",
        )


def _is_block_device(folder: Path) -> bool:
    """Whether a folder lies on a local device, whose reads the system counts for each process."""
    return str(describe_mount("", folder, {})["device"]).startswith("/dev/")


def with_bytes(rate: Rate, recipe: MeasuredRecipe) -> Rate:
    """The rate with estimated bytes where the format maps its files, so that no read call shows them."""
    estimate = rate.samples * recipe.stored_sample_bytes
    if rate.bytes > estimate * _LEAST_CALLED:
        return rate
    return replace(rate, bytes=estimate, bytes_per_s=rate.samples_per_s * recipe.stored_sample_bytes)


def device_share(rate: Rate) -> str:
    """A clause with the share of the bytes that came from the device; empty if the system does not count them."""
    return f", {percent(rate.device_bytes / rate.bytes)} of the bytes came from the device" if rate.device_bytes else ""
