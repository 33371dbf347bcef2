"""Components on the order of accesses, see :mod:`dlio_torch.iotrace.fidelity.measures`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, READ, WRITE
from dlio_torch.iotrace.fidelity import distances
from dlio_torch.iotrace.fidelity.contiguous_reads import (
    NEAR,
    contiguous_lengths,
    effective,
    weighted_ks,
    weighted_median,
)
from dlio_torch.iotrace.fidelity.measures import (
    NOUNS,
    TOLERANCE,
    MeasuredComponent,
    Measurements,
    Missing,
    Terms,
    between,
    lacking,
)
from dlio_torch.iotrace.fidelity.sides import Side
from dlio_torch.iotrace.fidelity.work_per_open import openings
from dlio_torch.iotrace.figures import access_order
from dlio_torch.iotrace.figures.row_groups import group
from dlio_torch.units import format_size, percent

Ints = NDArray[np.int64]

_SIZES = 64  # powers of two
_LETTERS = 2 * _SIZES * 3  # direction, size, jump
_RULES = ("sequential", "consecutive")
_ROOM = 64 * NEAR
"""Bytes; smaller files have no far jumps and are not compared with much larger ones."""

_LARGER = 4
_LONGEST = 16 * NEAR
"""Bytes; scale-free, longer contiguous parts count as this, since they reflect the size of the file."""

_STRINGS = 64
"""Largest number of operation strings that are compared, longest first."""


def jumps(a: Side, b: Side, terms: Terms) -> Measurements:
    """Jumps of reads and of writes, per stream."""
    for name in (READ, WRITE):
        key = f"{name} jumps"
        if a.coarse or b.coarse:
            yield from lacking(key, a, b, name, [0, 0]) or []
            continue
        (of_a, room_a), (of_b, room_b) = (_jumps(side, name, terms) for side in (a, b))
        absent = lacking(key, a, b, name, [of_a.size, of_b.size])
        if absent is not None:
            yield from absent
            continue
        shown = [
            f"{percent(float(np.mean(sample < 0)))} back, {percent(float(np.mean(sample > 0)))} ahead"
            for sample in (of_a, of_b)
        ]
        floor = distances.ks_floor(of_a.size, of_b.size)
        distance, exact = distances.ks_within(of_a, of_b, room_a, room_b), distances.ks(of_a, of_b)
        yield MeasuredComponent(key, distance, between(*shown), floor, (of_a.size, of_b.size), exact)


def places(a: Side, b: Side, terms: Terms) -> Measurements:
    """Bytes of contiguous reads and writes,
    :mod:`dlio_torch.iotrace.fidelity.contiguous_reads`.
    """
    ends = [_end(side) for side in (a, b)]
    small = terms.scale_free and min(ends) < _ROOM and min(ends) * _LARGER < max(ends)
    for name in (READ, WRITE):
        key = f"{name} stretches"
        lengths = [np.zeros(0, np.int64) if side.coarse else _contiguous_lengths(side, name, terms) for side in (a, b)]
        absent = lacking(key, a, b, name, [sample.size for sample in lengths])
        if absent is not None:
            yield from absent
            continue
        if small:
            label, end = (a if ends[0] < ends[1] else b).label, format_size(min(ends))
            yield Missing(key, f"the files of {label} end at {end}, too small for jumps beyond {format_size(NEAR)}")
            continue
        if terms.scale_free:
            lengths = [np.minimum(sample, _LONGEST) for sample in lengths]
        shown = between(*(f"half of the bytes in up to {format_size(weighted_median(sample))}" for sample in lengths))
        counts = effective(lengths[0]), effective(lengths[1])
        medians = float(weighted_median(lengths[0])), float(weighted_median(lengths[1]))
        floor = distances.ks_floor(*counts)
        yield MeasuredComponent(key, weighted_ks(*lengths), shown, floor, counts, values=medians)


def shares(a: Side, b: Side, terms: Terms) -> Measurements:
    """Sequential and consecutive shares of reads and of writes, per process and per stream."""
    if a.coarse or b.coarse:
        yield from _counted_shares(a, b)
        return
    for per, suffix in (("process", ""), ("stream", " per stream")):
        if per == "stream" and not terms.both.threads:
            for name in (f"{rule} {noun}{suffix}" for noun in NOUNS.values() for rule in _RULES):
                yield Missing(name, "a side does not distinguish threads")
            return
        shares_of_sides = [
            access_order.shares(side.calls, "stream" if per == "stream" else "process") for side in (a, b)
        ]
        for name, noun in NOUNS.items():
            shares_a, shares_b = (shares[name] for shares in shares_of_sides)
            for rule in _RULES:
                key = f"{rule} {noun}{suffix}"
                absent = lacking(key, a, b, name, [shares_a.accesses, shares_b.accesses])
                if absent is not None:
                    yield from absent
                    continue
                of_a, of_b = getattr(shares_a, rule), getattr(shares_b, rule)
                floor = distances.share_floor(of_a, shares_a.accesses, of_b, shares_b.accesses)
                shown = between(percent(of_a, 2), percent(of_b, 2))
                counts = shares_a.accesses, shares_b.accesses
                yield MeasuredComponent(key, abs(of_a - of_b), shown, floor, counts, values=(of_a, of_b))


def order(a: Side, b: Side, terms: Terms) -> Measurements:
    """Pairs of successive transfers."""
    del terms
    counts = [np.zeros(0) if side.coarse else _successions(side) for side in (a, b)]
    absent = lacking("order", a, b, READ, [int(table.sum()) for table in counts])
    if absent is not None:
        yield from absent
        return
    of_a, of_b = counts
    distance = distances.total_variation(of_a, of_b)
    # What single transfers differ by is told by sizes and jumps.
    singles = [table.reshape(_LETTERS, _LETTERS).sum(axis=1) for table in counts]
    beyond = max(0.0, distance - distances.total_variation(*singles))
    shares_a, shares_b = of_a / of_a.sum(), of_b / of_b.sum()
    most = int(np.abs(shares_a - shares_b).argmax())
    first, second = divmod(most, _LETTERS)
    shown = between(percent(shares_a[most], 2), percent(shares_b[most], 2))
    detail = f"{_word(first)}, then {_word(second)}: {shown}" if distance else "the same successions"
    floor = distances.variation_floor(of_a, of_b)
    yield MeasuredComponent("order", beyond, detail, floor, (int(of_a.sum()), int(of_b.sum())))


def operations(a: Side, b: Side, terms: Terms) -> Measurements:
    """Sequences of call classes, of each file and process."""
    for side in (a, b):
        if side.coarse:
            yield Missing("operations", f"{side.label} has counters only")
            return
    # A process that exits closes its files without a call.
    seen = (a.recording.sees & b.recording.sees) - {CLOSE}
    if len(seen) < 2:
        yield Missing("operations", "both sides record one class of calls only")
        return
    strings_a, strings_b = _strings(a, seen), _strings(b, seen)
    common = sorted(strings_a.keys() & strings_b.keys(), key=lambda key: -_longer(strings_a[key], strings_b[key]))
    if not common:
        yield Missing("operations", "no file of recording A is paired with a file of recording B")
        return
    chosen = common[:_STRINGS]
    windows = max(1, min(8, _STRINGS // len(chosen)))
    lengths = np.array([_longer(strings_a[key], strings_b[key]) for key in chosen], float)
    edits = np.array(
        [
            distances.edit(_classes(a, strings_a[key]), _classes(b, strings_b[key]), windows=windows,
                           scale_free=terms.scale_free)
            for key in chosen
        ]
    )  # fmt: skip
    worst = int((edits * lengths).argmax())
    of_a, of_b = strings_a[chosen[worst]].size, strings_b[chosen[worst]].size
    label = terms.both.pairing.labels[chosen[worst][0]]
    detail = f"{len(chosen)} of {len(common)} strings; {label}: A {of_a:,} calls, B {of_b:,}"
    yield MeasuredComponent("operations", float((edits * lengths).sum() / lengths.sum()), detail)


def _counted_shares(a: Side, b: Side) -> Iterator[MeasuredComponent | Missing]:
    for name, noun in NOUNS.items():
        for rule in _RULES:
            key = f"{rule} {noun}"
            shares = [
                side.counted_share(name, rule)
                if side.coarse
                else getattr(access_order.shares(side.calls)[name], rule)
                for side in (a, b)
            ]  # fmt: skip
            of_a, of_b = shares
            if of_a is None or of_b is None:
                if of_a is not None or of_b is not None:
                    yield Missing(key, f"{a.label if of_a is None else b.label} has none, or does not count them")
                continue
            shown = between(percent(of_a, 2), percent(of_b, 2))
            yield MeasuredComponent(key, abs(of_a - of_b), shown, values=(of_a, of_b))


def _placed(side: Side) -> NDArray[np.bool_]:
    placed: NDArray[np.bool_] = side.calls["offset"].to_numpy() >= 0
    return placed


def _end(side: Side) -> int:
    """Largest end of an access, bytes."""
    calls = side.calls[_placed(side) & (side.transfers(READ) | side.transfers(WRITE))]
    return int((calls["offset"].to_numpy() + calls["bytes"].to_numpy()).max(initial=0))


def _contiguous_lengths(side: Side, name: str, terms: Terms) -> Ints:
    rows = side.transfers(name) & _placed(side)
    return contiguous_lengths(side.calls[rows], side.file[rows], openings(side, terms.sees_opens)[rows])


def _jumps(side: Side, name: str, terms: Terms) -> tuple[Ints, NDArray[np.float64]]:
    """Jumps within openings, and the tolerance of each."""
    chosen = np.flatnonzero(side.is_class(name))
    calls = side.calls.iloc[chosen]
    followed = access_order.Followed(calls, "stream")
    if not followed.rows.size:
        return followed.jump, np.zeros(0)
    opening = openings(side, terms.sees_opens)[chosen][followed.rows]
    within = np.append(False, opening[1:] == opening[:-1])
    within[followed.first] = False
    size = calls["bytes"].to_numpy()[followed.rows]
    largest = np.maximum(size, np.append(0, size[:-1]))  # of both accesses
    jump = followed.jump[within]
    room = TOLERANCE * np.maximum(np.abs(jump), largest[within])
    if terms.scale_free:
        room[np.abs(jump) > NEAR] = 0  # a far jump is one ahead or one back, of whatever length
        jump = np.clip(jump, -NEAR, NEAR)
    return jump, room


def _successions(side: Side) -> NDArray[np.float64]:
    """Number of times that each letter follows each other one in the streams of a side."""
    rows = side.transfers(READ) | side.transfers(WRITE)
    rows &= _placed(side)
    calls = side.calls[rows]
    streams = group([calls[name].to_numpy() for name in ("rank", "pid", "tid")] + [side.file[rows]])
    sequence, first = streams.sort(calls["start_ns"].to_numpy())
    offset, size = calls["offset"].to_numpy()[sequence], calls["bytes"].to_numpy()[sequence]
    letters = side.is_class(WRITE)[rows][sequence] * np.int64(_SIZES)
    letters += np.rint(np.log2(np.maximum(size, 1))).astype(np.int64)
    jump = np.zeros(offset.size, np.int64)
    jump[1:] = np.sign(offset[1:] - (offset + size)[:-1])
    jump[first] = 0
    letters = letters * 3 + jump + 1
    successions = letters[:-1] * _LETTERS + letters[1:]
    inside = np.ones(offset.size, bool)
    inside[first] = False
    table: NDArray[np.float64] = np.bincount(successions[inside[1:]], minlength=_LETTERS**2).astype(float)
    return table


def _word(letter: int) -> str:
    kind, jump = divmod(letter, 3)
    direction, power = divmod(kind, _SIZES)
    jump_text = ("jump back,", "consecutive", "jump ahead,")[jump]
    return f"{jump_text} {('read', 'write')[direction]} ~{format_size(2**power)}"


def _strings(side: Side, seen: frozenset[str]) -> dict[tuple[int, int], Ints]:
    """Rows of each operation string, by number of the file and index of the process among the file's processes."""
    rows = np.flatnonzero(np.isin(side.kind, [CLASSES.index(name) for name in seen]))
    if not rows.size:
        return {}
    calls = side.calls.iloc[rows]
    processes = group([side.file[rows], calls["rank"].to_numpy(), calls["pid"].to_numpy()])
    sequence, first = processes.sort(calls["start_ns"].to_numpy())
    representative = processes.representative
    number, rank = side.file[rows][representative], calls["rank"].to_numpy()[representative]
    began = calls["start_ns"].to_numpy()[sequence[first]]
    strings: dict[tuple[int, int], Ints] = {}
    ends = np.append(first[1:], sequence.size)
    place, before = 0, -1
    for which in np.lexsort((began, rank, number)).tolist():
        file = int(number[which])
        place, before = (place + 1 if file == before else 0), file
        strings[file, place] = rows[sequence[first[which] : ends[which]]]
    return strings


def _classes(side: Side, rows: Ints) -> NDArray[np.int8]:
    return side.kind[rows]


def _longer(a: Ints, b: Ints) -> int:
    return max(a.size, b.size)
