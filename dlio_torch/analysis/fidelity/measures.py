"""The components of a comparison: which distance stands for what, and how far apart is still alike.

Every component is a distance from 0 (equal) to 1::

    <class> count            |a - b| / max(a, b) of the number of calls; classes that both sides record,
                             but for close: a process that exits closes its files without a call
    read bytes, write bytes  |a - b| / max(a, b) of the bytes moved
    bytes by file            half the sum over files and directions of the difference of their shares of
                             all bytes (total variation)
    files                    1 - files of both / files of either (Jaccard), paired as
                             :mod:`dlio_torch.analysis.fidelity.pairing` says
    read sizes, write sizes  Kolmogorov-Smirnov distance of the transfer sizes, of which two are the same if they
                             differ by up to 1 % (:func:`dlio_torch.analysis.fidelity.distances.ks_within`)
    read jumps, write jumps  the same of the jumps, offset - end of the previous access of the stream within one
                             opening of the file; the 1 % are of the jump, or of either access if that is larger
    read stretches ...       Kolmogorov-Smirnov distance of the bytes taken from one place, weighted by bytes
                             (:mod:`dlio_torch.analysis.fidelity.stretches`): samples in order, or shuffled
    sequential reads ...     difference of the shares, Darshan's rule: per process and file
    ... per stream           the same per thread, where both sides tell threads apart
    order                    total variation of the pairs of successive transfers of a stream, less that of
                             single transfers; each is described by its direction, the nearest power of two
                             of its size, and whether it jumps back, not at all, or ahead
    operations               normalised edit distance of the string of call classes of each file and process
                             (:func:`dlio_torch.analysis.fidelity.distances.edit`), mean over strings by length
    readers                  |a - b| / max(a, b) of the number of threads of a rank that read at one time: those
                             between the beginning of their first read and the end of their last; of all times
                             when a read begins the median, weighted by the bytes of the read
    read durations ...       Kolmogorov-Smirnov distance of the durations of calls     } only where the
    read bandwidth ...       |a - b| / max(a, b) of bytes over the union of intervals  } storage is the same
    overlap                  difference of |IO & compute| / |IO|
    exposed I/O              difference of |IO - compute| / measured time; both only of 1 s or more

Scale-free, amounts give way to what stays when a run is shortened::

    reads per MiB, writes per MiB    |a - b| / max(a, b) of calls over bytes.  Calls at the beginning of an opening
                                     of a file, before the first large one, do not count: their share shrinks with
                                     more steps where files stay open
    calls by class                   total variation of the shares of the classes that both sides record
    opens per file                   |a - b| / max(a, b) of opens over pairs of a process and a file, or over bytes,
                                     whichever is less: the first stays where a file is opened once, the second
                                     where it is opened for each sample or pass
    bytes by file, files             of parts (data sets of many files) instead of single files
    read jumps, write jumps          a jump of more than 1 MiB counts as one of 1 MiB, since it tells the size
                                     of the file
    read stretches ...           one of more than 16 MiB counts as one of 16 MiB; left out where the files of one
                             side alone are too small for far jumps
    operations                       of windows of the strings, their length left out, each where it fits best nearby

Sizes and jumps are given without tolerance, too (``exact``), which is not judged.  Where both sides record opens, jumps
and stretches end at an open of the file by the thread: passes over a file that is opened anew are no longer stretches.
With more steps only the calls at the beginning of a run lose weight: in sizes, shares of classes, consecutive and
operations by less than their limits from some 100 reads a file on.  With the batch grow the stretches, where a batch is
read from one place, and the sizes, where it is read by one call: compare runs of one batch size.

The limits come from the application's own Cosmic Tagger log (8 ranks), reads of its training file.  Its two
halves, or two of its ranks, differ by at most: counts and bytes 0.011, sizes 0.016 (0.022 exactly), jumps 0.007,
stretches 0.15 (0.2 by chance), sequential 0.007, consecutive 0.014, order 0.010, durations 0.09, bandwidth 0.36.  Wrong
emulations of it differ by: one size for all, sizes 0.48; random offsets, consecutive 0.88 and jumps 0.48;
shuffled events, stretches 0.68; a tenth of the speed, durations 0.93.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dlio_torch.analysis.fidelity import distances
from dlio_torch.analysis.fidelity.openings import after_beginning, openings
from dlio_torch.analysis.fidelity.sides import SOURCES, Both, Side
from dlio_torch.trace.calls import CLASSES, CLOSE, OPEN, READ, WRITE
from dlio_torch.units import format_size

TOLERANCE = 0.01
"""Sizes, and jumps, that differ by up to this share are the same: 256 bytes more in 60 MB make no other size."""

_ALIKE = 0.05
LIMITS: dict[str, float] = {
    **{f"{name} count": _ALIKE for name in CLASSES},
    **{f"{name} bytes": _ALIKE for name in (READ, WRITE)},
    "reads per MiB": _ALIKE,
    "writes per MiB": _ALIKE,
    "opens per file": _ALIKE,
    "calls by class": _ALIKE,
    "bytes by file": _ALIKE,
    "files": 0.1,
    **{f"{name} sizes": _ALIKE for name in (READ, WRITE)},
    **{f"{name} jumps": _ALIKE for name in (READ, WRITE)},
    **{f"{name} stretches": 0.1 for name in (READ, WRITE)},
    **{
        f"{rule} {name}{per}": _ALIKE
        for per in ("", " per stream")
        for name in ("reads", "writes")
        for rule in ("sequential", "consecutive")
    },
    "order": _ALIKE,
    "operations": _ALIKE,
    "readers": _ALIKE,
    **{f"{name} durations": 0.2 for name in (READ, WRITE)},
    **{f"{name} bandwidth": 0.4 for name in (READ, WRITE)},
    "overlap": _ALIKE,
    "exposed I/O": _ALIKE,
}
"""Every component, with the distance up to which two sides are called alike."""

NOUNS = {READ: "reads", WRITE: "writes"}
_MIB = 1 << 20
_EXITS = "not judged, because a process that exits closes its files without a call"


@dataclass(frozen=True)
class Measured:
    """One component of one pair of sides.

    Args:
        name: of :data:`LIMITS`.
        distance: 0 to 1.
        detail: the figures of both sides, one line.
        floor: distance that so few calls can have by chance.
        calls: how many of each side the floor is for.
        exact: the distance without tolerance; None: the distance has none.
    """

    name: str
    distance: float
    detail: str
    floor: float = 0.0
    calls: tuple[int, int] = (0, 0)
    exact: float | None = None


@dataclass(frozen=True)
class Missing:
    """A component that cannot be measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Terms:
    """On what terms two sides are compared.

    Args:
        both: what they have in common.
        scale_free: leave amounts out.
        other_storage: why durations say nothing; None: the storage is the same.
    """

    both: Both
    scale_free: bool
    other_storage: str | None

    @property
    def sees_opens(self) -> bool:
        """Whether both sides record opens."""
        return all(not side.coarse and OPEN in side.recording.sees for side in (self.both.a, self.both.b))


Found = Iterator[Measured | Missing]
Measure = Callable[[Side, Side, Terms], Found]


def amounts(a: Side, b: Side, terms: Terms) -> Found:
    """Counts and bytes, as they are or scale-free."""
    if terms.scale_free:
        yield from _per_mib(a, b, terms)
        yield from _opens_per_file(a, b)
        yield from _by_class(a, b)
    else:
        yield from _counts(a, b)
        yield from _bytes(a, b)
    yield _by_file(a, b, terms)


def files(a: Side, b: Side, terms: Terms) -> Found:
    """How many files of the two sets are in both."""
    parts = terms.scale_free
    of_a, of_b = (set(np.unique(side.numbers(parts)).tolist()) for side in (a, b))
    common, either = len(of_a & of_b), len(of_a | of_b)
    labels = terms.both.pairing.part_labels if parts else terms.both.pairing.labels
    shown = [f"{'sets of files' if parts else 'files'}: {common} of both"]
    for side, rest in (("A", sorted(of_a - of_b)), ("B", sorted(of_b - of_a))):
        if rest:
            shown.append(f"{len(rest)} of {side} alone ({', '.join(labels[number] for number in rest[:2])})")
    detail = ", ".join(shown)
    yield Measured("files", distances.jaccard(common, either), detail)


def sizes(a: Side, b: Side, terms: Terms) -> Found:
    """Transfer sizes of reads and of writes."""
    del terms
    for name in (READ, WRITE):
        key = f"{name} sizes"
        values = [side.calls["bytes"].to_numpy()[side.transfers(name)] for side in (a, b)]
        absent = lacking(key, a, b, name, [found.size for found in values])
        if absent is not None:
            yield from absent
            continue
        shown = [f"median {np.median(found):,.0f} B, mean {found.mean():,.0f} B" for found in values]
        floor = distances.ks_floor(values[0].size, values[1].size)
        distance = distances.ks_within(*values, *(TOLERANCE * found for found in values))
        counts = values[0].size, values[1].size
        yield Measured(key, distance, between(*shown), floor, counts, distances.ks(*values))


def lacking(key: str, a: Side, b: Side, name: str, counts: list[int]) -> list[Missing] | None:
    """What to say where a side has nothing to compare; None: both have. Nothing is said where neither has."""
    for side in (a, b):
        if side.coarse:
            return [Missing(key, f"{side.label} has counters only")]
        if name not in side.recording.sees:
            return [Missing(key, unseen(side))]
    if not any(counts):
        return []
    for side, count in zip((a, b), counts, strict=True):
        if not count:
            return [Missing(key, f"{side.label} has none")]
    return None


def unseen(side: Side) -> str:
    """That the source of a side does not record a class of calls."""
    if side.coarse:
        return f"the counters of {side.label} do not tell"
    return f"not recorded by {SOURCES[side.recording.kind]} ({side.label})"


def percent(share: float, digits: int = 1) -> str:
    """A share as text."""
    return f"{100 * share:.{digits}f}%"


def between(a: str, b: str) -> str:
    """The figures of both sides."""
    return f"A {a}; B {b}"


def _counts(a: Side, b: Side) -> Found:
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
            yield Measured(key, distances.relative(count_a, count_b), between(f"{count_a:,}", f"{count_b:,}"))


def _bytes(a: Side, b: Side) -> Found:
    for name in (READ, WRITE):
        key = f"{name} bytes"
        of_a, of_b = a.moved(name), b.moved(name)
        if of_a is None or of_b is None:
            yield Missing(key, unseen(a if of_a is None else b))
        elif of_a or of_b:
            yield Measured(key, distances.relative(of_a, of_b), between(format_size(of_a), format_size(of_b)))


def _per_mib(a: Side, b: Side, terms: Terms) -> Found:
    for name, noun in NOUNS.items():
        key = f"{noun} per MiB"
        moved = [_moved(side, name, terms) for side in (a, b)]
        if not any(count for count, _ in moved) and all(count is not None for count, _ in moved):
            continue
        rate_a, rate_b = (count / size * _MIB if count and size else None for count, size in moved)
        if rate_a is None or rate_b is None:
            side = a if rate_a is None else b
            reason = unseen(side) if side.count(name) is None else f"{side.label} has none"
            yield Missing(key, reason)
            continue
        yield Measured(key, distances.relative(rate_a, rate_b), between(f"{rate_a:,.4g}", f"{rate_b:,.4g}"))


def _moved(side: Side, name: str, terms: Terms) -> tuple[int | None, int | None]:
    """Number and bytes of the transfers; without the beginnings of openings where both sides have a record of calls."""
    if terms.both.a.coarse or terms.both.b.coarse or name not in side.recording.sees:
        return side.count(name), side.moved(name)
    rows = after_beginning(side, name, openings(side, terms.sees_opens))
    return int(np.count_nonzero(rows)), int(side.calls["bytes"].to_numpy()[rows].sum())


def _opens_per_file(a: Side, b: Side) -> Found:
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
        yield Missing(key, f"{side.label} has counters only" if side.coarse else unseen(side))
        return
    distance = distances.relative(rate_a, rate_b)
    moved = [sum(side.moved(name) or 0 for name in NOUNS) for side in (a, b)]
    shown = [f"{rate_a:.4g}", f"{rate_b:.4g}"]
    if all(moved):
        per_mib = [(count or 0) / size * _MIB for count, size in zip(opens, moved, strict=True)]
        distance = min(distance, distances.relative(*per_mib))
        shown = [f"{text} ({rate:.4g} per MiB)" for text, rate in zip(shown, per_mib, strict=True)]
    yield Measured(key, distance, between(*shown))


def _by_class(a: Side, b: Side) -> Found:
    pairs = {name: (a.count(name), b.count(name)) for name in CLASSES if name != CLOSE}
    known = {name: (x, y) for name, (x, y) in pairs.items() if x is not None and y is not None and (x or y)}
    if len(known) < 2:
        yield Missing("calls by class", "both sides record one class of calls only" if known else "no calls")
        return
    of_a, of_b = (np.array([counts[side] for counts in known.values()], float) for side in (0, 1))
    shown = [
        ", ".join(
            f"{percent(share)} {name}" for name, share in zip(known, found / (found.sum() or 1), strict=True) if share
        )
        for found in (of_a, of_b)
    ]
    floor = distances.variation_floor(of_a, of_b)
    totals = int(of_a.sum()), int(of_b.sum())
    yield Measured("calls by class", distances.total_variation(of_a, of_b), between(*shown), floor, totals)


def _by_file(a: Side, b: Side, terms: Terms) -> Measured | Missing:
    key = "bytes by file"
    numbers = [side.numbers(terms.scale_free) for side in (a, b)]
    size = 1 + max(int(found.max(initial=-1)) for found in numbers)
    tables = []
    for side, number in zip((a, b), numbers, strict=True):
        moved = [side.moved_by(name, number, size) for name in NOUNS]
        if any(found is None for found in moved):
            return Missing(key, unseen(side))
        tables.append(np.concatenate([found for found in moved if found is not None]).astype(float))
    of_a, of_b = tables
    distance = distances.total_variation(of_a, of_b)
    if not of_a.sum() or not of_b.sum():
        return Missing(key, f"{'B' if of_a.sum() else 'A'} moved no bytes")
    shares = [found / found.sum() for found in tables]
    most = int(np.abs(shares[0] - shares[1]).argmax())
    labels = terms.both.pairing.part_labels if terms.scale_free else terms.both.pairing.labels
    what = "read from" if most < size else "written to"
    shown = between(*(percent(found[most]) for found in shares))
    return Measured(key, distance, f"{what} {labels[most % size]}: {shown}" if distance else "the same shares")
