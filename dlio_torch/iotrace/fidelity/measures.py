"""Components of a comparison: the definition of each distance, and its limit.

Every component is a distance from 0 (equal) to 1::

    <class> count            |a - b| / max(a, b) of the number of calls; classes that both sides record,
                             but for close: a process that exits closes its files without a call
    read bytes, write bytes  |a - b| / max(a, b) of the bytes moved
    bytes by file            half the sum over files and directions of the difference of their shares of
                             all bytes (total variation)
    files                    1 - files of both / files of either (Jaccard), paired as
                             :mod:`dlio_torch.iotrace.fidelity.pairing` says
    read sizes, write sizes  Kolmogorov-Smirnov distance of the transfer sizes, of which two are the same if they
                             differ by up to 1 % (:func:`dlio_torch.iotrace.fidelity.distances.ks_within`)
    read jumps, write jumps  the same of the jumps, offset - end of the previous access of the stream within one
                             opening of the file; the 1 % are of the jump, or of either access if that is larger
    read stretches ...       Kolmogorov-Smirnov distance of the bytes taken from one place, weighted by bytes
                             (:mod:`dlio_torch.iotrace.fidelity.contiguous_reads`): samples in order, or shuffled
    sequential reads ...     difference of the shares, Darshan's rule: per process and file
    ... per stream           the same per thread, if both sides distinguish threads
    order                    total variation of the pairs of successive transfers of a stream, less that of
                             single transfers; each is described by its direction, the nearest power of two
                             of its size, and whether it jumps back, not at all, or ahead
    operations               normalised edit distance of the string of call classes of each file and process
                             (:func:`dlio_torch.iotrace.fidelity.distances.edit`), mean over strings by length
    readers                  |a - b| / max(a, b) of the number of threads of a rank that read at one time: those
                             between the beginning of their first read and the end of their last; of all times
                             when a read begins the median, weighted by the bytes of the read
    read durations ...       Kolmogorov-Smirnov distance of the durations of calls     } only where the
    read bandwidth ...       |a - b| / max(a, b) of bytes over the union of intervals  } storage is the same
    overlap                  difference of |IO & compute| / |IO|
    exposed I/O              difference of |IO - compute| / measured time; both only of 1 s or more

Scale-free, these replace the amounts, since they do not change with the length of a run::

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

Sizes and jumps are also given without tolerance (``exact``), which is not judged.  If both sides record opens, jumps
and stretches end at an open of the file by the thread: repeated passes, each with its own open, make no longer
stretches.  More steps only reduce the weight of the calls at the beginning of a run: sizes, shares of classes,
consecutive and operations change by less than their limits from some 100 reads a file on.  Compare runs of one batch
size: larger batches lengthen the stretches if a batch is read from one place, and the sizes if one call reads it.

The limits come from the application's own Cosmic Tagger log (8 ranks), reads of its training file.  Its two
halves, or two of its ranks, differ by at most: counts and bytes 0.011, sizes 0.016 (0.022 exactly), jumps 0.007,
stretches 0.15 (0.2 by chance), sequential 0.007, consecutive 0.014, order 0.010, durations 0.09, bandwidth 0.36.  Wrong
emulations of it differ by: one size for all, sizes 0.48; random offsets, consecutive 0.88 and jumps 0.48;
shuffled events, stretches 0.68; a tenth of the speed, durations 0.93.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlio_torch.iotrace.events.call_names import CLASSES, OPEN, READ, WRITE
from dlio_torch.iotrace.fidelity.sides import SOURCES, Both, Side

TOLERANCE = 0.01
"""Relative difference up to which sizes and jumps count as equal: 60 MB and 60 MB + 256 bytes are equal."""

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
"""The components, and the largest distances at which two sides count as alike."""

NOUNS = {READ: "reads", WRITE: "writes"}


@dataclass(frozen=True)
class MeasuredComponent:
    """Measurement of one component for one pair of sides.

    Args:
        name: of :data:`LIMITS`.
        distance: 0 to 1.
        detail: the figures of both sides, one line.
        floor: distance that so few calls can have by chance.
        calls: how many of each side the floor is for.
        exact: the distance without tolerance; None: the distance has none.
        values: the number of A and that of B that tell which side has more; None: no single number does.
    """

    name: str
    distance: float
    detail: str
    floor: float = 0.0
    calls: tuple[int, int] = (0, 0)
    exact: float | None = None
    values: tuple[float, float] | None = None


@dataclass(frozen=True)
class Missing:
    """A component that cannot be measured, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Terms:
    """Conditions under which two sides are compared.

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
        """Whether both sides record calls to open."""
        return all(not side.coarse and OPEN in side.recording.sees for side in (self.both.a, self.both.b))


Measurements = Iterator[MeasuredComponent | Missing]
Measure = Callable[[Side, Side, Terms], Measurements]


def lacking(key: str, a: Side, b: Side, name: str, counts: list[int]) -> list[Missing] | None:
    """Components that are missing because a side lacks data; None if neither side lacks any, empty if both do."""
    for side in (a, b):
        if side.coarse:
            return [Missing(key, f"{side.label} contains only counters")]
        if name not in side.recording.sees:
            return [Missing(key, unseen(side))]
    if not any(counts):
        return []
    for side, count in zip((a, b), counts, strict=True):
        if not count:
            return [Missing(key, f"{side.label} has no such call")]
    return None


def unseen(side: Side) -> str:
    """Reason why the source of a side does not record a class of calls."""
    if side.coarse:
        return f"the counters of {side.label} do not contain this class of calls"
    return f"not recorded by {SOURCES[side.recording.kind]} ({side.label})"


def between(a: str, b: str) -> str:
    """The figures of both sides as one text."""
    return f"A {a}; B {b}"
