"""The settings of the loader that may be tried where no axes are given: those that the recipe can have.

None of them changes the data set.  The sets are those of the fragments ``main_process``, ``threads`` and ``workers``
of ``conf/loader``, with as many readers as there are cores, beside the sizes of reads or caches of the format; with
``loader.engine=decoupled`` those of that engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dlio_torch.config.schema import Config
from dlio_torch.config.schema_reading import LoaderConfig
from dlio_torch.formats.core.registry import facts
from dlio_torch.formats.core.tuning import sizes

Choice = tuple[tuple[str, str], ...]
"""Keys and their values."""

READ_THREADS = 2
"""Threads of the decoupled engine where ``loader.read_threads`` is 0."""
MODE = "loader"
MODES = ("main_process", "threads", "workers")
_AHEAD = (1, 2, 4, 8)  # batches that each worker reads ahead
_DEPTHS = (1, 2, 4)  # batches that the threads keep ahead, for each thread
_TRANSFERS_OF_DECOUPLED = ("256KiB", "1MiB", "4MiB")
_BYTES_AHEAD = ("4MiB", "16MiB", "64MiB")


def mode_of(config: Config) -> str:
    """The fragment of ``conf/loader`` that a configuration is like."""
    if config.loader.num_workers:
        return "workers"
    return "threads" if config.loader.read_threads else "main_process"


def prefetch_factor(loader: LoaderConfig) -> int:
    """Batches that each worker reads ahead: 2 where nothing is set, as in torch."""
    return loader.prefetch_factor or 2


def choices(config: Config, *, cores: int, gpus: bool, fixed: Collection[str] = ()) -> list[Choice]:
    """All combinations, possible or not; a key that has no meaning in one is not in it.

    Args:
        config: the recipe as configured.
        cores: that each rank may use.
        gpus: whether batches can be pinned for one.
        fixed: keys that were set on the command line, which are left alone.
    """
    if config.loader.engine == "decoupled":
        return _combined([()], [axis for axis in _decoupled(config, cores, gpus) if axis[0] not in fixed])
    found: list[Choice] = []
    others = [axis for axis in _others(config, gpus) if axis[0] not in fixed]
    pinned = _pinned(config, fixed)
    for mode in _modes(cores):
        if pinned and dict(mode)[MODE] not in pinned:
            continue
        kept = tuple((key, value) for key, value in mode if key not in fixed and not (pinned and key == MODE))
        found += [choice for choice in _combined([kept], others) if choice not in found]
    return found


def _combined(choices: list[Choice], axes: Iterable[tuple[str, tuple[str, ...]]]) -> list[Choice]:
    for key, values in axes:
        choices = [(*choice, (key, value)) for choice in choices for value in values]
    return choices


def _decoupled(config: Config, cores: int, gpus: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The options of the decoupled engine, with the workers that are configured."""
    loader = config.loader
    threads = {*_counts(cores), 2 * cores, loader.read_threads or READ_THREADS}  # reading waits, more than it works
    yield "loader.read_threads", tuple(map(str, sorted(threads)))
    yield "loader.transfer_size", sizes(_TRANSFERS_OF_DECOUPLED, loader.transfer_size)
    yield "loader.prefetch_bytes", sizes(_BYTES_AHEAD, loader.prefetch_bytes)
    if gpus:
        yield "loader.pin_memory", ("false", "true")


def _pinned(config: Config, fixed: Collection[str]) -> set[str]:
    """The kinds of loader that are left where one of the keys that decide on it is given; empty: all."""
    deciding = {MODE: mode_of(config), "loader.num_workers": "workers", "loader.read_threads": "threads"}
    found = {kind for key, kind in deciding.items() if key in fixed}
    return found | {mode_of(config)} if found else found


def _modes(cores: int) -> Iterator[Choice]:
    yield ((MODE, "main_process"),)
    for count in _counts(cores):
        for depth in _DEPTHS:
            yield (
                (MODE, "threads"),
                ("loader.read_threads", str(count)),
                ("loader.prefetch_batches", str(depth * count)),
            )
    for count in _counts(cores):
        for ahead in _AHEAD:
            yield (
                (MODE, "workers"),
                ("loader.num_workers", str(count)),
                ("loader.prefetch_factor", str(ahead)),
            )


def _counts(cores: int) -> list[int]:
    """1, 2, 4 ... and the number of cores itself."""
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i < cores]
    return [*powers, max(1, cores)]


def _others(config: Config, gpus: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options beside the kind of the loader, and their values."""
    if gpus:
        yield "loader.pin_memory", ("false", "true")
    if not config.dataset.direct_io:  # its reads have a size of their own
        yield from facts(config.dataset.format).axes(config)
