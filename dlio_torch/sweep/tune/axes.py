"""The settings of the loader that may be tried where no axes are given: those that the recipe can have.

None of them changes the data set.  The sets are those of the fragments ``main_process``, ``threads`` and ``workers``
of ``conf/loader``, with as many readers as there are cores, beside the sizes of reads or caches of the format; with
``loader.engine=decoupled`` those of that engine.
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
_AHEAD = (1, 2, 4, 8)  # batches that each worker reads ahead
_DEPTHS = (1, 2, 4)  # batches that the threads keep ahead, for each thread


def mode_of(config: Config) -> str:
    """The fragment of ``conf/loader`` that a configuration is like."""
    if config.loader.num_workers:
        return "workers"
    return "threads" if config.loader.read_threads else "main_process"


def choices(config: Config, *, cores: int, gpus: bool, fixed: Collection[str] = ()) -> list[Choice]:
    """All combinations, possible or not; a key that has no meaning in one is not in it.

    Args:
        config: the recipe as configured.
        cores: that each rank may use.
        gpus: whether batches can be pinned for one.
        fixed: keys that were set on the command line, which are left alone.
    """
    own = engines.facts(config.loader.engine).axes(config, cores)
    if own is not None:
        return _combined([()], [axis for axis in (*own, *_pinning(gpus)) if axis[0] not in fixed])
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
    yield from _pinning(gpus)
    if not config.dataset.direct_io:  # its reads have a size of their own
        yield from facts(config.dataset.format).axes(config)


def _pinning(gpus: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    if gpus:
        yield "loader.pin_memory", ("false", "true")
