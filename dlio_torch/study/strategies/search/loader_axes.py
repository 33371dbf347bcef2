"""Settings of the loader that a search may try without given axes; none of them changes the data set.

``space=loader`` has the options of torch's DataLoader that the recipe's engine takes: ``num_workers``,
``prefetch_factor``, ``persistent_workers`` and ``pin_memory``.  An engine with options of its own has these instead.
``space=all`` also has reader threads (fragment ``threads`` of ``conf/loader``) and sizes of reads and caches of the
format.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.formats.core.registry import facts

Choice = tuple[tuple[str, str], ...]
"""Keys and their values."""

MODE = "loader"
MODES = ("main_process", "threads", "workers")
WORKERS, THREADS, PREFETCH = "loader.num_workers", "loader.read_threads", "loader.prefetch_factor"
PERSISTENT = "loader.persistent_workers"
_AHEAD = (1, 2, 4, 8)  # batches that each worker reads ahead
_DEPTHS = (1, 2, 4)  # batches that the threads keep ahead, for each thread


def mode_of(config: Config) -> str:
    """Returns the fragment of ``conf/loader`` that corresponds to a configuration."""
    if config.loader.num_workers:
        return "workers"
    return "threads" if config.loader.read_threads else "main_process"


def loader_choices(config: Config, *, cores: int, gpus: bool, fixed: Collection[str] = ()) -> list[Choice]:
    """All combinations of DataLoader options, or of the options of an engine that has its own.

    A key that has no meaning in a combination is not in it.

    Args:
        config: the recipe as configured.
        cores: cores that each rank may use.
        gpus: whether batches can be pinned for a GPU.
        fixed: keys of the command line, which stay as they are.
    """
    pinning = [axis for axis in _pinning(gpus) if axis[0] not in fixed]
    local = _engine_axes(config, cores)
    if local is not None:
        return _combined([()], [*(axis for axis in local if axis[0] not in fixed), *pinning])
    counts = [config.loader.num_workers] if WORKERS in fixed else [0, *_counts(cores)]
    if MODE in fixed:
        counts = [count for count in counts if (count > 0) == (config.loader.num_workers > 0)]
    choices: list[Choice] = []
    for count in counts:
        choice: Choice = () if WORKERS in fixed else ((WORKERS, str(count)),)
        if config.loader.read_threads:
            if not {MODE, THREADS}.isdisjoint(fixed):
                continue  # reader threads are no option of a DataLoader
            choice = (*choice, (THREADS, "0"))
        choices += _combined([choice], [axis for axis in _worker_axes(config, count) if axis[0] not in fixed])
    return _combined(choices or [()], pinning)


def all_choices(config: Config, *, cores: int, gpus: bool, fixed: Collection[str] = ()) -> list[Choice]:
    """All combinations of DataLoader options, reader threads, and sizes of reads and caches of the format.

    Arguments are those of :func:`loader_choices`.
    """
    if _engine_axes(config, cores) is not None:
        return loader_choices(config, cores=cores, gpus=gpus, fixed=fixed)
    choices: list[Choice] = []
    others = [axis for axis in (*_pinning(gpus), *_format_axes(config)) if axis[0] not in fixed]
    kinds = _kinds(config, fixed)
    for mode in _modes(cores):
        if kinds and dict(mode)[MODE] not in kinds:
            continue
        kept = tuple((key, value) for key, value in mode if key not in fixed and not (kinds and key == MODE))
        choices += [choice for choice in _combined([kept], others) if choice not in choices]
    return choices


def worker_resets(config: Config, fixed: Collection[str]) -> tuple[str, ...]:
    """Arguments that a loader without workers needs, because the recipe has options of readers."""
    loader = config.loader
    resets = {
        PREFETCH: ("null", loader.prefetch_factor is not None),
        PERSISTENT: ("false", loader.persistent_workers),
        "loader.multiprocessing_context": ("null", loader.multiprocessing_context is not None),
        "loader.affinity": ("none", loader.affinity != "none"),
    }
    return tuple(f"{key}={value}" for key, (value, needed) in resets.items() if needed and key not in fixed)


def _engine_axes(config: Config, cores: int) -> list[tuple[str, tuple[str, ...]]] | None:
    axes = engines.facts(config.loader.engine).axes(config, cores)
    return None if axes is None else list(axes)


def _combined(choices: list[Choice], axes: Iterable[tuple[str, tuple[str, ...]]]) -> list[Choice]:
    for key, values in axes:
        choices = [(*choice, (key, value)) for choice in choices for value in values]
    return choices


def _worker_axes(config: Config, count: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options of worker processes."""
    if not count:
        return
    yield PREFETCH, tuple(map(str, _AHEAD))
    if config.train.epochs > 1 and engines.facts(config.loader.engine).keeps_workers:
        yield PERSISTENT, ("false", "true")


def _kinds(config: Config, fixed: Collection[str]) -> set[str]:
    """Returns the kinds of loader that the given keys allow; empty: all."""
    deciding = {MODE: mode_of(config), WORKERS: "workers", THREADS: "threads"}
    kinds = {kind for key, kind in deciding.items() if key in fixed}
    return kinds | {mode_of(config)} if kinds else kinds


def _modes(cores: int) -> Iterator[Choice]:
    yield ((MODE, "main_process"),)
    for count in _counts(cores):
        for depth in _DEPTHS:
            yield (MODE, "threads"), (THREADS, str(count)), ("loader.prefetch_batches", str(depth * count))
    for count in _counts(cores):
        for ahead in _AHEAD:
            yield (MODE, "workers"), (WORKERS, str(count)), (PREFETCH, str(ahead))


def _counts(cores: int) -> list[int]:
    """Returns 1, 2, 4 ... and the number of cores."""
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i < cores]
    return [*powers, max(1, cores)]


def _format_axes(config: Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Sizes of reads and caches of the format; direct reads have a size of their own."""
    if not config.dataset.direct_io:
        yield from facts(config.dataset.format).axes(config)


def _pinning(gpus: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    if gpus:
        yield "loader.pin_memory", ("false", "true")
