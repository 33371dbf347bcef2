"""The points of a search: a finite set of configurations that can be run, the default first."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.emit import as_dict
from dlio_torch.config.fields import lookup
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import dump_scalar
from dlio_torch.data.engines.registry import facts
from dlio_torch.errors import ConfigError
from dlio_torch.study.axes import configured, magnitude
from dlio_torch.study.model import NOT_APPLICABLE, Axis, Point, Study, grid, point_at
from dlio_torch.study.resolve import Resolved, digest, resolve, resolve_point, scale_lines
from dlio_torch.study.strategies.search.costs import Cost, Host, costs_of
from dlio_torch.study.strategies.search.loader_axes import (
    MODE,
    MODES,
    WORKERS,
    Choice,
    all_choices,
    loader_choices,
    mode_of,
    worker_resets,
)
from dlio_torch.study.strategies.search.search_request import SearchRequest
from dlio_torch.units import exact_size, format_size

MOST_POINTS = 200
"""Largest grid that is searched completely; of a larger grid, a random part is searched."""
AS_CONFIGURED = "as configured"
"""Name of the default's value on an axis that is not a single option."""
_MEMORY_SHARE = 0.25  # of the machine's, for batches that are read ahead
_COUNTS = ("loader.num_workers", "loader.read_threads")  # 0 is a value of theirs
_MODE_OF = {
    "loader.num_workers": "workers",
    "loader.prefetch_factor": "workers",
    "loader.persistent_workers": "workers",
    "loader.read_threads": "threads",
    "loader.prefetch_batches": "threads",
}


@dataclass(frozen=True)
class SearchSpace:
    """The points of a search, and their common settings.

    Attributes:
        study: with all axes.
        points: the first is the default.
        costs: of each point.
        notes: what was left out, one line each.
    """

    study: Study
    points: tuple[Resolved, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class GivenPoints:
    """Points of the command line, before the options of the loader are combined with them.

    Attributes:
        default: the experiment as configured.
        points: of the axes that were given, all of them or some.
        notes: what was left out, one line each.
    """

    default: Resolved
    points: tuple[Resolved, ...]
    notes: tuple[str, ...]


def given_points(request: SearchRequest, *, cwd: Path | None = None) -> GivenPoints:
    """The configurations that the arguments stand for; nothing heavy is imported to find what is wrong with them.

    Raises:
        ConfigError: the default, or a value of an axis that was given, cannot be run.
    """
    study = request.study
    default = resolve_point(Point(1, (), study.settings, study.ranks), cwd=cwd)
    points, notes = _given(study, default, cwd)
    return GivenPoints(default, tuple(points), tuple(notes))


def search_space(request: SearchRequest, host: Host, given: GivenPoints, *, cwd: Path | None = None) -> SearchSpace:
    """The points of ``request`` on ``host``.

    Args:
        request: arguments of the search.
        host: the machine.
        given: of :func:`given_points`.
        cwd: folder that relative paths start from.

    Raises:
        ConfigError: nothing to search.
    """
    study = request.study
    default, notes = given.default, list(given.notes)
    config = default.composed.config
    choices: list[Choice] = [()]
    fixed = {split_argument(argument)[0] for argument in study.settings} | {axis.key for axis in study.axes}
    if request.space:
        combine = all_choices if request.space == "all" else loader_choices
        choices = combine(config, cores=max(1, host.cores // study.ranks), gpus=host.gpus, fixed=fixed)
    combinations = [(*first.point.values, *second) for first in given.points for second in choices]
    count = len(combinations)
    if count > MOST_POINTS:
        combinations = random.Random(config.seed).sample(combinations, MOST_POINTS)
        notes.append(_drawn(count, config.seed))
    study = replace(study, axes=_axes(study, combinations, config, fixed))
    known = {item.point.values: item for item in given.points} if choices == [()] else {}
    points, reasons = _points(study, combinations, default, known, cwd)
    notes += [f"left out: {number} combinations: {reason}" for reason, number in reasons.items()]
    study = replace(study, axes=_of_use(study.axes, request.study.axes, points), scaled=scale_lines([default]))
    costs = costs_of(points, host)
    most = _MEMORY_SHARE * host.memory_bytes
    kept = [i for i, cost in enumerate(costs) if i == 0 or cost.memory_bytes <= most]
    if len(kept) < len(costs):
        notes.append(f"left out: {len(costs) - len(kept)} settings whose batches take more than {format_size(most)}")
    if len(kept) < 2:
        raise ConfigError(
            "tune (command line): there is only one setting, so there is nothing to search",
            hint="give values to choose from, for example loader.num_workers=0..4, or space=all",
        )
    return SearchSpace(
        study,
        tuple(replace(points[i], point=replace(points[i].point, number=n)) for n, i in enumerate(kept, 1)),
        tuple(costs[i] for i in kept),
        tuple(notes),
    )


def _given(study: Study, default: Resolved, cwd: Path | None) -> tuple[list[Resolved], list[str]]:
    """The points of the axes that were given, all of them or some."""
    size, seed = math.prod(len(axis.values) for axis in study.axes), default.composed.config.seed
    if not study.axes:
        return [default], []
    if size <= MOST_POINTS:
        return resolve(study, cwd=cwd)
    result: dict[Choice, Resolved] = {}
    for point in random.Random(seed).sample(grid(study), MOST_POINTS):
        # As in a sweep, an axis that has no meaning beside the others is left out of a point.
        without = [
            tuple((key, NOT_APPLICABLE if key == left_out else value) for key, value in point.values)
            for left_out, _ in reversed(point.values)
        ]
        for values in (point.values, *without):
            with contextlib.suppress(ConfigError):
                result.setdefault(values, resolve_point(point_at(study, 1, values), cwd=cwd))
                break
    return list(result.values()), [_drawn(size, seed)]


def _drawn(count: int, seed: int) -> str:
    return f"{MOST_POINTS} of {count} combinations are searched, drawn with seed={seed}"


def _axes(study: Study, combinations: Sequence[Choice], config: Config, fixed: Collection[str]) -> tuple[Axis, ...]:
    """The axes that were given, then those of the loader with all of their values."""
    values: dict[str, dict[str, None]] = {}
    for combination in combinations:
        for key, value in combination:
            values.setdefault(key, {})[value] = None
    known = {axis.key: axis for axis in study.axes}
    axes = []
    for key, entry in values.items():
        entry.pop(NOT_APPLICABLE, None)
        if key in known:
            axes.append(known[key])
            continue
        more: dict[str, tuple[str, ...]] = {}  # further arguments of a value
        if key == MODE and not facts(config.loader.engine).keeps_workers:
            more = {"workers": ("loader.persistent_workers=false",)}
        elif key == WORKERS and MODE not in values and (resets := worker_resets(config, fixed)):
            more = {"0": resets}
        settings = {item: (f"{key}={item}", *more.get(item, ())) for item in entry} if more else None
        axes.append(Axis(key, tuple(entry), settings))
    return tuple(axes)


def _points(
    study: Study,
    combinations: Sequence[Choice],
    default: Resolved,
    known: Mapping[Choice, Resolved],
    cwd: Path | None,
) -> tuple[list[Resolved], Counter[str]]:
    """The default, and the combinations that can be run and differ from it and from each other."""
    values = _default_values(study, default.composed.config)
    local = _loader_identity(default)
    result = {local: replace(default, point=replace(default.point, values=values))}
    reasons: Counter[str] = Counter()
    for combination in combinations:
        chosen = dict(combination)
        point = point_at(study, 1, tuple((axis.key, chosen.get(axis.key, NOT_APPLICABLE)) for axis in study.axes))
        try:
            outcome = known[combination] if combination in known else resolve_point(point, cwd=cwd)
        except ConfigError as error:
            reasons[(error.message.partition(": ")[2] or error.message).rpartition(": ")[2]] += 1
            continue
        mode = chosen.get(MODE, "")
        if mode in MODES and mode_of(outcome.composed.config) != mode:
            continue  # what was set on the command line has made another loader of it
        same = _loader_identity(outcome)
        if same == local:  # the same loader, with the values as the axes write them
            result[local] = replace(default, point=replace(default.point, values=point.values))
        else:
            result.setdefault(same, outcome)
    return list(result.values()), reasons


def _loader_identity(resolved: Resolved) -> str:
    """Returns an identity that is equal for configurations with the same torch loader."""
    loader = resolved.composed.config.loader
    if not loader.num_workers or loader.prefetch_factor is not None:
        return resolved.digest
    config = replace(resolved.composed.config, loader=replace(loader, prefetch_factor=loader.prefetched))
    return digest(config, resolved.point.ranks)


def _default_values(study: Study, config: Config) -> tuple[tuple[str, str], ...]:
    """Value of the default on each axis."""
    mode = mode_of(config)
    tree: dict[str, Any] = as_dict(config)
    names = {axis.key for axis in study.axes}
    values = []
    for axis in study.axes:
        value = AS_CONFIGURED
        if axis.key == MODE:
            value = mode
        elif _MODE_OF.get(axis.key, mode) != mode and (MODE in names or axis.key not in _COUNTS):
            value = NOT_APPLICABLE
        elif axis.settings is None:
            value = _text(tree, axis)
        values.append((axis.key, value))
    return tuple(values)


def _text(tree: Any, axis: Axis) -> str:
    try:
        tree = configured(tree, axis.key)
    except KeyError:
        return AS_CONFIGURED
    if isinstance(tree, dict):  # a group of which fragments are picked
        return AS_CONFIGURED
    option = lookup(axis.key.split("."))
    if isinstance(tree, int) and option is not None and option.unit == "B":
        same = [value for value in axis.values if magnitude(value) == tree]
        return same[0] if same else exact_size(tree)
    text = dump_scalar(tree)
    same = [value for value in axis.values if magnitude(value) is not None and magnitude(value) == magnitude(text)]
    return same[0] if same else text


def _of_use(axes: Sequence[Axis], given: Sequence[Axis], points: Sequence[Resolved]) -> tuple[Axis, ...]:
    """The axes with the values that points have, the default's among them, numbers in order.

    Axes that were given keep all their values; one of the loader that no point has is none.
    """
    result = {axis.key for axis in given}
    collected = []
    for axis in axes:
        used = dict.fromkeys(dict(point.point.values)[axis.key] for point in points)
        used.pop(NOT_APPLICABLE, None)
        values = list(axis.values) if axis.key in result else [value for value in axis.values if value in used]
        values += [value for value in used if value not in values]
        if all(magnitude(value) is not None for value in values):
            values.sort(key=lambda value: magnitude(value) or 0.0)
        settings = None if axis.settings is None else {value: axis.settings.get(value, ()) for value in values}
        if values:
            collected.append(replace(axis, values=tuple(values), settings=settings))
    return tuple(collected)
