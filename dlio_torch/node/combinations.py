"""Combinations of loader settings whose throughput is measured: engine, workers, affinity and pinned memory.

Each engine runs with each number of workers.  At the largest numbers that have a core for each worker, each engine also
runs with the other affinities, and pinned memory where there is a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dlio_torch.config.arguments import keys_of
from dlio_torch.config.compose import Composed
from dlio_torch.config.fields import lookup
from dlio_torch.config.schema import Config
from dlio_torch.data.engines.registry import all_facts
from dlio_torch.errors import ConfigError
from dlio_torch.study.model import Point, last_of_each
from dlio_torch.study.resolve import resolve_point
from dlio_torch.study.strategies.ladder.rungs import WITHOUT_EXTRAS, common_settings
from dlio_torch.study.strategies.search.loader_axes import WORKERS, worker_resets
from dlio_torch.units import counted

ENGINE, AFFINITY, PINNING = "loader.engine", "loader.affinity", "loader.pin_memory"
KEYS = (ENGINE, WORKERS, AFFINITY, PINNING)
"""Options that differ between combinations."""
_WORKERS = (0, 1, 2, 4)
_VARIED = 2  # numbers of workers at which the first affinity is tried

Values = tuple[tuple[str, str], ...]
"""Key and value of each option of a combination."""


@dataclass(frozen=True)
class Combination:
    """Combination of settings that can be run.

    Attributes:
        point: its values and arguments.
        steps: steps of an epoch that the data give.
        batches_ahead: batches that the loader reads ahead of the trainer.
    """

    point: Point
    steps: int
    batches_ahead: int


def combinations(
    config: Config, *, cores: int, numa_nodes: int, gpus: int, fixed: Collection[str] = ()
) -> list[Values]:
    """Returns the values of each combination.

    Args:
        config: the recipe.
        cores: usable cores of the node.
        numa_nodes: NUMA nodes with usable cores.
        gpus: visible GPUs.
        fixed: keys of the command line, which stay as they are.
    """
    counts = worker_counts(config, cores, fixed)
    affinity, pinning = config.loader.affinity, config.loader.pin_memory
    plain = [_values(engine, count, affinity, pinning) for engine in _engines(config, fixed) for count in counts]
    crew = [count for count in counts if 0 < count <= cores][-_VARIED:]
    varied: list[Values] = []
    for number, name in enumerate(_affinities(config, numa_nodes, fixed)):
        chosen = crew[-1:] if number else crew
        varied += [_values(engine, n, name, pinning) for engine in _engines(config, fixed) for n in chosen]
    if gpus and PINNING not in fixed:
        varied += [_values(engine, n, affinity, not pinning) for engine in _engines(config, fixed) for n in crew[-1:]]
    return [*plain, *varied]


def worker_counts(config: Config, cores: int, fixed: Collection[str] = ()) -> list[int]:
    """Returns 0, 1, 2, 4 and the number of cores if it is larger; a number that the user gave is the only one."""
    if WORKERS in fixed:
        return [config.loader.num_workers]
    return [*_WORKERS, *([cores] if cores > _WORKERS[-1] else [])]


def runnable(
    composed: Composed,
    settings: Sequence[str],
    values: Iterable[Values],
    amounts: Callable[[Composed], tuple[int, int]],
) -> tuple[list[Combination], list[str]]:
    """Returns the combinations that can be run, numbered from 1, and a line about each other one.

    Args:
        composed: the recipe.
        settings: ``key=value`` arguments of all runs.
        values: of the combinations.
        amounts: returns steps and batches ahead of a run; raises a ConfigError if the data do not give a step.

    Raises:
        ConfigError: no combination can be run.
    """
    fixed = keys_of(settings)
    usable: list[Combination] = []
    errors: list[ConfigError] = []
    for combination in values:
        changes = [f"{key}={value}" for key, value in combination]
        if dict(combination)[WORKERS] == "0":
            changes += worker_resets(composed.config, fixed)
        arguments = last_of_each([*settings, *changes])
        try:
            resolved = resolve_point(Point(len(usable) + 1, combination, arguments))
            usable.append(Combination(resolved.point, *amounts(resolved.composed)))
        except ConfigError as error:
            errors.append(error)
    if not usable:
        raise errors[0]
    return usable, [f"left out: {error}" for error in errors]


def trial_settings(composed: Composed, given: Sequence[str], gpus: int) -> tuple[str, ...]:
    """Returns the arguments that all runs share: one epoch at the full step time, without checkpoints and evaluation.

    Args:
        composed: the recipe.
        given: arguments of the command line, which take precedence.
        gpus: visible GPUs.
    """
    device = ["train.device=cuda"] if gpus else []
    fixed = ["train.epochs=1", "storage.limits=off", *device, *WITHOUT_EXTRAS, *common_settings(composed.config)]
    return last_of_each([*fixed, *given])


def with_settings(point: Point, settings: Sequence[str]) -> Point:
    """Returns the point with further arguments."""
    return replace(point, settings=last_of_each([*point.settings, *settings]))


def label(values: Values) -> str:
    """The values of a combination in words: ``dataloader, 2 workers, affinity cores, pinned memory``."""
    chosen = dict(values)
    parts = [chosen[ENGINE], counted(int(chosen[WORKERS]), "worker")]
    parts += [f"affinity {chosen[AFFINITY]}"] if chosen[AFFINITY] != "none" else []
    parts += ["pinned memory"] if chosen[PINNING] == "true" else []
    return ", ".join(parts)


def _values(engine: str, workers: int, affinity: str, pinned: bool) -> Values:
    return tuple(zip(KEYS, (engine, str(workers), affinity, str(pinned).lower()), strict=True))


def _engines(config: Config, fixed: Collection[str]) -> list[str]:
    """The recipe's engine, and the engines that read the files by their layout."""
    if ENGINE in fixed:
        return [config.loader.engine]
    others = [about.name for about in all_facts() if about.reads_ranges]
    return list(dict.fromkeys([config.loader.engine, *others]))


def _affinities(config: Config, numa_nodes: int, fixed: Collection[str]) -> Iterator[str]:
    """Affinities other than the recipe's; binding to NUMA nodes makes a difference from two nodes on."""
    option = lookup(AFFINITY.split("."))
    if option is None or AFFINITY in fixed:
        return
    for name in option.choices:
        if name != config.loader.affinity and (name != "numa" or numa_nodes > 1):
            yield name
