"""Compares two recordings: components, each with a distance, a limit and the figures of both sides.

:mod:`dlio_torch.iotrace.fidelity.measures` defines the components.  They are not averaged: an emulation is as good as
its worst component, which is the headline.  A component is *alike* if its distance, less the noise floor if one is
known, is at most its limit, or at most the difference that so few calls show by chance.  The worst component has the
largest ratio of distance to this bound.

The noise floor is the distance between repeats of one side: runs that the user names, or, rank by rank, the ranks of
one side that read and write the same sets of files.  The distinct work of rank 0 is no noise, nor is the choice of
files of a rank.  Components with so few calls that chance alone may make half of the largest distance are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TypeVar

import numpy as np

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.iotrace.events.call_names import READ, WRITE
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.fidelity import measures, measures_amount, measures_order, measures_time
from dlio_torch.iotrace.fidelity.alignment import bring_together
from dlio_torch.iotrace.fidelity.components import Comparison, Component
from dlio_torch.iotrace.fidelity.cosine_similarity import parity
from dlio_torch.iotrace.fidelity.measures import LIMITS, Measure, MeasuredComponent, Missing, Terms
from dlio_torch.iotrace.fidelity.pairing import mappings
from dlio_torch.iotrace.fidelity.sides import SOURCES, Both, Side
from dlio_torch.iotrace.figures.row_groups import group

_MEASURES: tuple[Measure, ...] = (
    measures_amount.amounts,
    measures_amount.files,
    measures_amount.sizes,
    measures_order.jumps,
    measures_order.places,
    measures_order.shares,
    measures_order.order,
    measures_order.operations,
    measures_time.readers,
    measures_time.storage,
    measures_time.compute,
)
_MOST_PAIRS = 64
_MOST_NOISE = 28
_SAYS_NOTHING = 0.5
"""Chance distance above which a component could hardly exceed its limit and is not judged."""
_OF_ROLES = ("files", "bytes by file")
"""Components in which the ranks of a run differ by role, not by chance."""

T = TypeVar("T")


def compare(
    a: Recording,
    b: Recording,
    *,
    files: Sequence[tuple[str, str]] | str | None = None,
    per_rank: bool = False,
    scale_free: bool = False,
    same_storage: bool | None = None,
    repeats_a: Sequence[Recording] = (),
    repeats_b: Sequence[Recording] = (),
) -> Comparison:
    """Compares two recordings of any sources.

    Args:
        a: one recording, for example the application's log.
        b: the other, for example the emulated run.
        files: patterns of A and B that belong together, only they are compared; a text is a pattern of both
            or ``A=B``; None: all data files, see :mod:`dlio_torch.iotrace.fidelity.pairing`.
        per_rank: compare rank with rank and give the median.  Where their numbers differ, every rank with
            every other, but rank 0 with rank 0 only if on either side it reads or writes sets of files that
            no other does; at most 64 pairs evenly chosen.
        scale_free: leave amounts out, to compare a short run with a long one.
        same_storage: whether durations mean something; None: where both are known to have used one storage.
        repeats_a: other recordings of what A is one of.
        repeats_b: other recordings of what B is one of.

    Raises:
        ConfigError: a pattern matches no file, or both sides must have ranks and do not.
        DataError: there is nothing to compare.
    """
    wanted = mappings([files]) if isinstance(files, str) else files
    both = bring_together(a, b, wanted)
    terms = Terms(both, scale_free, _other_storage(a, b, same_storage))
    if per_rank:
        pairs = _rank_pairs(both)
        components, missing = _over_pairs(pairs, terms)
    else:
        pairs = []
        components, missing = _measure(both.a, both.b, terms)
    if not components:
        raise DataError(
            f"{a.path} and {b.path} cannot be compared: no figure was recorded on both sides",
            hint="; ".join(f"{component.name}: {component.reason}" for component in missing[:3]) or None,
        )
    noise, noise_from = _noise(both, terms, wanted, (a, *repeats_a), (b, *repeats_b), per_rank)
    components = [_beyond(component, noise) for component in components]
    return Comparison(
        a=str(a.path),
        b=str(b.path),
        components=tuple(
            sorted(components, key=lambda component: (-component.beyond_noise / component.allowed, component.name))
        ),
        left_out=(*both.left_out, *_grouped(missing)),
        paired=both.pairing.said(),
        scale_free=scale_free,
        rank_pairs=len(pairs) if per_rank else None,
        noise_from=noise_from,
        parity=parity(both.a, both.b),
        notes=tuple(f"{label}: {note}" for label, recording in (("A", a), ("B", b)) for note in recording.notes),
    )


def _measure(a: Side, b: Side, terms: Terms) -> tuple[list[Component], list[Missing]]:
    components: list[Component] = []
    missing: list[Missing] = []
    for measure in _MEASURES:
        for result in measure(a, b, terms):
            if isinstance(result, MeasuredComponent) and result.floor >= _SAYS_NOTHING:
                shown = measures.between(*(f"{count:,}" for count in result.calls))
                missing.append(Missing(result.name, f"too few calls for a comparison ({shown})"))
            elif isinstance(result, MeasuredComponent):
                limit = LIMITS[result.name]
                figures = result.name, result.distance, limit, result.floor, result.detail
                components.append(Component(*figures, exact=result.exact, values=result.values))
            else:
                missing.append(result)
    return components, missing


def _over_pairs(pairs: Sequence[tuple[Side, Side]], terms: Terms) -> tuple[list[Component], list[Missing]]:
    """Distances as medians over pairs of ranks; a component that no pair could measure is missing."""
    by_name: dict[str, list[tuple[Component, int, int]]] = {}
    missing: dict[str, Missing] = {}
    for a, b in pairs:
        components, absent = _measure(a, b, terms)
        for component in components:
            by_name.setdefault(component.name, []).append((component, a.rank or 0, b.rank or 0))
        missing.update({component.name: component for component in absent})
    medians = []
    for rows in by_name.values():
        worst, rank_a, rank_b = max(rows, key=lambda row: row[0].distance)
        distance = float(np.median([row[0].distance for row in rows]))
        middle = min(rows, key=lambda row: abs(row[0].distance - distance))[0]
        medians.append(replace(middle, distance=distance, worst_pair=(rank_a, rank_b, worst.distance)))
    return medians, [component for name, component in missing.items() if name not in by_name]


def _rank_pairs(both: Both) -> list[tuple[Side, Side]]:
    for side in (both.a, both.b):
        if side.coarse:
            raise ConfigError(
                f"--per-rank (command line): {side.recording.path} contains only counters, which have no single ranks",
                hint="compare the recordings without --per-rank",
            )
    of_a, of_b = ({rank: side.of_rank(rank) for rank in side.ranks} for side in (both.a, both.b))
    if of_a.keys() == of_b.keys():
        return _evenly([(of_a[rank], of_b[rank]) for rank in of_a], _MOST_PAIRS)
    first_a, first_b = _leader(both.a), _leader(both.b)
    pairs = [
        (first, second)
        for first, second in product(of_a.values(), of_b.values())
        if None in (first_a, first_b) or (first.rank == first_a) == (second.rank == first_b)
    ]
    return _evenly(pairs, _MOST_PAIRS)


def _roles(side: Side) -> dict[int, frozenset[tuple[int, int]]]:
    """Sets of files that each rank reads, and sets of files that each rank writes."""
    moves = side.transfers(READ) | side.transfers(WRITE)
    ranks = side.calls["rank"].to_numpy()[moves]
    used = group([ranks, side.part[moves], side.kind[moves]]).representative
    roles: dict[int, set[tuple[int, int]]] = {rank: set() for rank in side.ranks}
    for rank, part, kind in zip(ranks[used], side.part[moves][used], side.kind[moves][used], strict=True):
        roles[int(rank)].add((int(part), int(kind)))
    return {rank: frozenset(used) for rank, used in roles.items()}


def _leader(side: Side) -> int | None:
    """The first rank if no other rank has its role (for example, it alone writes checkpoints); else None."""
    first, *others = _roles(side).items()
    return first[0] if others and first[1] not in dict(others).values() else None


def _evenly(values: list[T], most: int) -> list[T]:
    if len(values) <= most:
        return values
    return [values[place] for place in np.linspace(0, len(values) - 1, most).round().astype(int)]


def _noise(
    both: Both,
    terms: Terms,
    wanted: Sequence[tuple[str, str]] | None,
    runs_a: Sequence[Recording],
    runs_b: Sequence[Recording],
    per_rank: bool,
) -> tuple[dict[str, float], str | None]:
    """Noise of each component (the larger distance between repeats of either side), and its source."""
    sides: list[list[dict[str, float]]] = []
    said: list[str] = []
    for label, side, runs, place in (("A", both.a, runs_a, 0), ("B", both.b, runs_b, 1)):
        if len(runs) > 1:
            # One mapping of files serves repeats of one side: each pattern stands for itself.
            patterns = None if wanted is None else [(mapping[place], mapping[place]) for mapping in wanted]
            sides.append([_distances(x, y, patterns, terms, per_rank) for x, y in combinations(runs, 2)])
            said.append(f"{len(runs)} runs of {label}")
        elif per_rank and len(side.ranks) > 1 and not (len(runs_a) > 1 or len(runs_b) > 1):
            ranks = _of_one_role(side)
            if ranks:
                # The sides of one recording have one numbering of files.
                sides.append([_by_name(_measure(x, y, terms)[0], _OF_ROLES) for x, y in ranks])
                said.append(f"ranks of {label}")
    noise: dict[str, float] = {}
    for repeats in sides:
        for name in {name for distances in repeats for name in distances}:
            median = float(np.median([distances[name] for distances in repeats if name in distances]))
            noise[name] = max(noise.get(name, 0.0), median)
    return noise, " and ".join(said) or None


def _distances(
    a: Recording, b: Recording, wanted: Sequence[tuple[str, str]] | None, terms: Terms, per_rank: bool
) -> dict[str, float]:
    both = bring_together(a, b, wanted)
    repeat_terms = replace(terms, both=both)
    components = (
        _over_pairs(_rank_pairs(both), repeat_terms)[0] if per_rank else _measure(both.a, both.b, repeat_terms)[0]
    )
    return _by_name(components)


def _of_one_role(side: Side) -> list[tuple[Side, Side]]:
    """Pairs of ranks that read and write the same sets of files."""
    roles = _roles(side)
    pairs = _evenly([(x, y) for x, y in combinations(roles, 2) if roles[x] == roles[y]], _MOST_NOISE)
    of_rank = {rank: side.of_rank(rank) for rank in {rank for pair in pairs for rank in pair}}
    return [(of_rank[x], of_rank[y]) for x, y in pairs]


def _by_name(components: Sequence[Component], but: Sequence[str] = ()) -> dict[str, float]:
    return {component.name: component.distance for component in components if component.name not in but}


def _beyond(component: Component, noise: dict[str, float]) -> Component:
    if component.name not in noise:
        return component
    floor = noise[component.name]
    return replace(component, noise=floor, excess=max(0.0, component.distance - floor))


def _other_storage(a: Recording, b: Recording, same_storage: bool | None) -> str | None:
    """Reason why the durations of the two sides cannot be compared; None if they can be."""
    for label, recording in (("A", a), ("B", b)):
        if not recording.trusted_times:
            return f"times recorded by {SOURCES[recording.kind]} ({label}) are not those of the undisturbed program"
    if same_storage is not None:
        return None if same_storage else "both sides used different storage"
    if a.path == b.path:
        return None
    places = [_place(recording) for recording in (a, b)]
    if None not in places and places[0] == places[1]:
        return None
    return "it is not known whether both sides used the same storage (--storage same states that they did)"


def _place(recording: Recording) -> tuple[object, object] | None:
    """Host and mount point of the data; None if either is not known."""
    about = recording.facts.get("environment", recording.facts)
    host, mounts = about.get("host"), about.get("mounts")
    mount = mounts["data"].get("mount_point") if isinstance(mounts, dict) and "data" in mounts else None
    return (host, mount) if host and mount else None


def _grouped(missing: Sequence[Missing]) -> list[str]:
    """One sentence for each reason, with all components that are missing because of it."""
    reasons: dict[str, list[str]] = {}
    for component in missing:
        reasons.setdefault(component.reason, []).append(component.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
