"""Measures components of amounts: counts, bytes, files, sizes; see :mod:`dlio_torch.iotrace.fidelity.measures`."""

from __future__ import annotations

import numpy as np

from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, OPEN, READ, WRITE
from dlio_torch.iotrace.fidelity import distances
from dlio_torch.iotrace.fidelity.measures import (
    NOUNS,
    TOLERANCE,
    MeasuredComponent,
    Measurements,
    Missing,
    Terms,
    between,
    lacking,
    unseen,
)
from dlio_torch.iotrace.fidelity.sides import Side
from dlio_torch.iotrace.fidelity.work_per_open import after_beginning, openings
from dlio_torch.units import format_size, percent

_MIB = 1 << 20
_EXITS = "not judged, because a process that exits closes its files without a recorded call"


def amounts(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares counts and bytes, as they are or scale-free."""
    if terms.scale_free:
        yield from _per_mib(a, b, terms)
        yield from _opens_per_file(a, b)
        yield from _by_class(a, b)
    else:
        yield from _counts(a, b)
        yield from _bytes(a, b)
    yield _by_file(a, b, terms)


def files(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares the sets of files of both sides."""
    parts = terms.scale_free
    of_a, of_b = (set(np.unique(side.numbers(parts)).tolist()) for side in (a, b))
    common, either = len(of_a & of_b), len(of_a | of_b)
    labels = terms.both.pairing.part_labels if parts else terms.both.pairing.labels
    shown = [f"{'sets of files' if parts else 'files'}: {common} on both sides"]
    for side, rest in (("A", sorted(of_a - of_b)), ("B", sorted(of_b - of_a))):
        if rest:
            shown.append(f"{len(rest)} only on side {side} ({', '.join(labels[number] for number in rest[:2])})")
    detail = ", ".join(shown)
    yield MeasuredComponent("files", distances.jaccard(common, either), detail, values=(len(of_a), len(of_b)))


def sizes(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares the transfer sizes of reads and of writes."""
    del terms
    for name in (READ, WRITE):
        key = f"{name} sizes"
        values = [side.calls["bytes"].to_numpy()[side.transfers(name)] for side in (a, b)]
        absent = lacking(key, a, b, name, [sample.size for sample in values])
        if absent is not None:
            yield from absent
            continue
        shown = [f"median {np.median(sample):,.0f} B, mean {sample.mean():,.0f} B" for sample in values]
        floor = distances.ks_floor(values[0].size, values[1].size)
        distance = distances.ks_within(*values, *(TOLERANCE * sample for sample in values))
        counts = values[0].size, values[1].size
        means = float(values[0].mean()), float(values[1].mean())
        exact = distances.ks(*values)
        yield MeasuredComponent(key, distance, between(*shown), floor, counts, exact, values=means)


def _counts(a: Side, b: Side) -> Measurements:
    for name in CLASSES:
        key = f"{name} count"
        counts = [side.count(name) for side in (a, b)]
        if name == CLOSE and any(counts) and None not in counts:
            shown = between(*(f"{count:,}" for count in counts))
            yield Missing(key, f"{shown}; {_EXITS}")
            continue
        count_a, count_b = counts
        if count_a is None or count_b is None:
            # Where the other side never made such a call there is nothing to miss.
            if any(counts):
                yield Missing(key, unseen(a if count_a is None else b))
        elif count_a or count_b:
            shown = between(f"{count_a:,}", f"{count_b:,}")
            yield MeasuredComponent(key, distances.relative(count_a, count_b), shown, values=(count_a, count_b))


def _bytes(a: Side, b: Side) -> Measurements:
    for name in (READ, WRITE):
        key = f"{name} bytes"
        of_a, of_b = a.moved(name), b.moved(name)
        if of_a is None or of_b is None:
            yield Missing(key, unseen(a if of_a is None else b))
        elif of_a or of_b:
            shown = between(format_size(of_a), format_size(of_b))
            yield MeasuredComponent(key, distances.relative(of_a, of_b), shown, values=(of_a, of_b))


def _per_mib(a: Side, b: Side, terms: Terms) -> Measurements:
    for name, noun in NOUNS.items():
        key = f"{noun} per MiB"
        moved = [_moved(side, name, terms) for side in (a, b)]
        if not any(count for count, _ in moved) and all(count is not None for count, _ in moved):
            continue
        rate_a, rate_b = (count / size * _MIB if count and size else None for count, size in moved)
        if rate_a is None or rate_b is None:
            side = a if rate_a is None else b
            reason = unseen(side) if side.count(name) is None else f"{side.label} has no such call"
            yield Missing(key, reason)
            continue
        shown = between(f"{rate_a:,.4g}", f"{rate_b:,.4g}")
        yield MeasuredComponent(key, distances.relative(rate_a, rate_b), shown, values=(rate_a, rate_b))


def _moved(side: Side, name: str, terms: Terms) -> tuple[int | None, int | None]:
    """Number and bytes of the transfers; without those at the begin of an opening if both sides record each call."""
    if terms.both.a.coarse or terms.both.b.coarse or name not in side.recording.sees:
        return side.count(name), side.moved(name)
    rows = after_beginning(side, name, openings(side, terms.sees_opens))
    return int(np.count_nonzero(rows)), int(side.calls["bytes"].to_numpy()[rows].sum())


def _opens_per_file(a: Side, b: Side) -> Measurements:
    key = "opens per file"
    opens = [side.count(OPEN) for side in (a, b)]
    if not any(opens):
        return
    users = [None if side.coarse else side.users() for side in (a, b)]
    rates = [
        count / number if count is not None and number else None for count, number in zip(opens, users, strict=True)
    ]
    rate_a, rate_b = rates
    if rate_a is None or rate_b is None:
        side = a if rate_a is None else b
        yield Missing(key, f"{side.label} contains only counters" if side.coarse else unseen(side))
        return
    distance = distances.relative(rate_a, rate_b)
    moved = [sum(side.moved(name) or 0 for name in NOUNS) for side in (a, b)]
    shown = [f"{rate_a:.4g}", f"{rate_b:.4g}"]
    if all(moved):
        per_mib = [(count or 0) / size * _MIB for count, size in zip(opens, moved, strict=True)]
        distance = min(distance, distances.relative(*per_mib))
        shown = [f"{text} ({rate:.4g} per MiB)" for text, rate in zip(shown, per_mib, strict=True)]
    yield MeasuredComponent(key, distance, between(*shown), values=(rate_a, rate_b))


def _by_class(a: Side, b: Side) -> Measurements:
    pairs = {name: (a.count(name), b.count(name)) for name in CLASSES if name != CLOSE}
    known = {name: (x, y) for name, (x, y) in pairs.items() if x is not None and y is not None and (x or y)}
    if len(known) < 2:
        yield Missing("calls by class", "both sides record one class of calls only" if known else "no calls")
        return
    of_a, of_b = (np.array([counts[side] for counts in known.values()], float) for side in (0, 1))
    shown = [
        ", ".join(
            f"{percent(share)} {name}" for name, share in zip(known, rate / (rate.sum() or 1), strict=True) if share
        )
        for rate in (of_a, of_b)
    ]
    floor = distances.variation_floor(of_a, of_b)
    totals = int(of_a.sum()), int(of_b.sum())
    yield MeasuredComponent("calls by class", distances.total_variation(of_a, of_b), between(*shown), floor, totals)


def _by_file(a: Side, b: Side, terms: Terms) -> MeasuredComponent | Missing:
    key = "bytes by file"
    numbers = [side.numbers(terms.scale_free) for side in (a, b)]
    size = 1 + max(int(part.max(initial=-1)) for part in numbers)
    tables = []
    for side, number in zip((a, b), numbers, strict=True):
        moved = [side.moved_by(name, number, size) for name in NOUNS]
        if any(table is None for table in moved):
            return Missing(key, unseen(side))
        tables.append(np.concatenate([table for table in moved if table is not None]).astype(float))
    of_a, of_b = tables
    distance = distances.total_variation(of_a, of_b)
    if not of_a.sum() or not of_b.sum():
        return Missing(key, f"{'B' if of_a.sum() else 'A'} moved no bytes")
    shares = [table / table.sum() for table in tables]
    most = int(np.abs(shares[0] - shares[1]).argmax())
    labels = terms.both.pairing.part_labels if terms.scale_free else terms.both.pairing.labels
    direction = "read from" if most < size else "written to"
    shown = between(*(percent(share[most]) for share in shares))
    return MeasuredComponent(
        key, distance, f"{direction} {labels[most % size]}: {shown}" if distance else "both sides have the same shares"
    )
