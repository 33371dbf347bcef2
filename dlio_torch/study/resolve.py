"""Composes the configuration of every point before the first run, so that every mistake is found at once.

Some combinations of a grid make no sense although each value does: ``loader.prefetch_factor=2,8`` with
``loader.num_workers=0,1``.  Where a point becomes possible when an axis is left out of it, it is run once without
that axis (``loader.num_workers=0``, the prefetch factor shown as ``-``); where that gives nothing new, it is left out
and said so.  A value that no possible point has is a mistake.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.emit import to_yaml
from dlio_torch.config.layers import COMMAND_LINE
from dlio_torch.config.scaling import COMPUTE_ONLY
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import available
from dlio_torch.study.checkpoint_arguments import checkpoint_plan
from dlio_torch.study.model import NOT_APPLICABLE, RANKS, Point, Study, TrialVerb, grid, point_at
from dlio_torch.study.warm_start import needs_fresh_start

_MOST_LEFT_OUT = 3
_MOST_LINES = 12


@dataclass(frozen=True)
class Resolved:
    """A point that can be run.

    Attributes:
        point: its values and arguments.
        composed: its configuration.
        digest: changes with the configuration, whatever it came from.
    """

    point: Point
    composed: Composed
    digest: str


def resolve_point(point: Point, *, cwd: Path | None = None) -> Resolved:
    """Compose the configuration of one point.

    Raises:
        ConfigError: it is wrong; the message begins with the point's values.
    """
    try:
        return _resolved(point, cwd)
    except ConfigError as error:
        raise _named(point, error) from None


def digest(config: Config, ranks: int) -> str:
    """Returns a short digest of the configuration of a run."""
    return hashlib.sha256(f"ranks: {ranks}\n{to_yaml(config)}".encode()).hexdigest()[:12]


def resolve(study: Study, *, cwd: Path | None = None) -> tuple[list[Resolved], list[str]]:
    """Returns the points of a study that can be run, numbered from 1, and a line about each omitted point.

    Raises:
        ConfigError: a value that cannot be used at any point; the message names the first such point's values.  Or
            no point is left.
    """
    points = grid(study)
    good: dict[tuple[tuple[str, str], ...], Resolved] = {}
    bad: list[tuple[Point, ConfigError]] = []
    for point in points:
        try:
            good[point.values] = _resolved(point, cwd)
        except ConfigError as error:
            bad.append((point, _from_file(error, point, study.written)))
    usable = {pair for values in good for pair in values}
    notes: list[str] = []
    absent: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    known = {resolved_point.digest for resolved_point in good.values()}
    for point, reason in bad:
        result = _without_axis(study, point, usable, cwd)
        if result is None or result.digest in known:
            notes.append(f"left out: {point.label}: {reason}")
        else:
            good.setdefault(result.point.values, result)
            absent.setdefault(result.point.values, []).append(point)
    usable |= {pair for values in good for pair in values}
    for point, reason in bad:
        if not set(point.values) <= usable:
            raise _named(point, reason)
    if not good:
        reason = bad[0][1]
        raise ConfigError(f"no point of the study can be run: {reason.message}", hint=reason.hint)
    for values, replaced in absent.items():
        keys = ", ".join(key for key, value in values if value == NOT_APPLICABLE)
        notes.append(
            f"{keys} has no meaning with {good[values].point.label}: one point replaces {len(replaced)} points"
        )
    order = sorted(good.values(), key=lambda resolved: resolved.point.number)
    return [replace(item, point=replace(item.point, number=i)) for i, item in enumerate(order, 1)], notes


def _without_axis(study: Study, point: Point, usable: set[tuple[str, str]], cwd: Path | None) -> Resolved | None:
    """Removes as few axes as possible from a point, until it can be run."""
    removable = [
        i
        for i, (pair, axis) in enumerate(zip(point.values, study.axes, strict=True))
        if pair in usable and axis.key != RANKS
    ]
    for count in range(1, min(len(removable), _MOST_LEFT_OUT, len(point.values) - 1) + 1):
        for chosen in itertools.combinations(reversed(removable), count):
            values = tuple(
                (key, NOT_APPLICABLE if i in chosen else value) for i, (key, value) in enumerate(point.values)
            )
            reduced = point_at(study, point.number, values)
            try:
                return _resolved(reduced, cwd)
            except ConfigError:
                continue
    return None


def compose_trial(verb: TrialVerb, settings: Sequence[str], ranks: int, *, cwd: Path | None = None) -> Composed:
    """Composes the configuration of a trial.

    Args:
        verb: verb of the command line that the trial is.
        settings: its arguments.
        ranks: its processes.
        cwd: folder that relative paths start from; None: the current one.

    Raises:
        ConfigError: a mistake in the arguments.
    """
    if verb == "checkpoint":
        return checkpoint_plan(settings, ranks, cwd=cwd).composed
    return compose(settings, cwd=cwd, world_size=ranks, formats=available())


def _resolved(point: Point, cwd: Path | None) -> Resolved:
    composed = compose_trial(point.verb, point.settings, point.ranks, cwd=cwd)
    if point.verb == "run" and composed.config.dataset.path is None:  # existing data are counted later
        check_world(composed.config, point.ranks, sources=composed.sources)
    point = replace(point, fresh=needs_fresh_start(composed.config, point.ranks))
    return Resolved(point, composed, digest(composed.config, point.ranks))


def _named(point: Point, error: ConfigError) -> ConfigError:
    location = f"ranks={point.ranks} " if point.ranks > 1 and RANKS not in dict(point.values) else ""
    return ConfigError(f"point {location}{point.label}: {error.message}", hint=error.hint)


def _from_file(error: ConfigError, point: Point, written: Mapping[str, str]) -> ConfigError:
    """Replaces the source of settings in ``error`` by their lines in the study file."""
    message = error.message
    for argument in point.settings:
        if argument in written:
            key = re.escape(argument.partition("=")[0])
            match = re.search(rf"(?<![\w.]){key}=[^()]* (\({COMMAND_LINE}\))", message)
            if match:
                message = f"{message[: match.start(1)]}({written[argument]}){message[match.end(1) :]}"
    return ConfigError(message, hint=error.hint)


def differing(resolved: Sequence[Resolved], digests: Mapping[int, str]) -> list[Point]:
    """Returns the points whose configuration has changed since the study began."""
    return [
        resolved_point.point
        for resolved_point in resolved
        if digests.get(resolved_point.point.number, resolved_point.digest) != resolved_point.digest
    ]


def scale_lines(resolved: Sequence[Resolved]) -> tuple[str, ...]:
    """Returns lines on the changes of the scale to the points, and on their effect on figures."""
    result = Counter(note for resolved_point in resolved for note in resolved_point.composed.notes)
    lines = [
        note if count == len(resolved) else f"{note}, {count} of {len(resolved)} points"
        for note, count in result.items()
    ]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = [f"and {len(lines) - _MOST_LINES + 1} more changes; the verb show lists them"]
    factors = sorted(
        {
            resolved_point.composed.config.scale.compute
            for resolved_point in resolved
            if any(key.startswith("compute.") for key in resolved_point.composed.scaled)
        }
    )
    if factors:
        lines.append(f"compute is scaled by {' or '.join(f'{factor:g}' for factor in factors)} {COMPUTE_ONLY}")
    return tuple(lines)
