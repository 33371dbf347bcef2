"""Distances between two sets of figures, each from 0 (equal) to 1 (nothing in common).

Two of them have a *floor*: the distance that two samples of these sizes from one distribution have by chance.  A
distance below its floor is not significant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = 4096
"""Length in operations up to which operation strings are compared as a whole; longer ones by windows."""

WINDOW = 2048
"""Operations in a window."""


def relative(a: float, b: float) -> float:
    """Relative distance ``|a - b| / max(a, b)`` of two amounts that are not negative; 0 if both are 0."""
    largest = max(a, b)
    return abs(a - b) / largest if largest else 0.0


def ks(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Kolmogorov-Smirnov distance: the largest difference of two cumulative distributions.

    Args:
        a: one sample, not empty.
        b: the other.
    """
    a, b = np.sort(a), np.sort(b)
    largest = 0.0
    # Both distributions are steps, so the largest difference lies at a value of one of the samples.
    for values in (a, b):
        below_a = np.searchsorted(a, values, side="right") / a.size
        below_b = np.searchsorted(b, values, side="right") / b.size
        largest = max(largest, float(np.abs(below_a - below_b).max()))
    return largest


def ks_within(a: NDArray[Any], b: NDArray[Any], room_a: NDArray[Any], room_b: NDArray[Any]) -> float:
    """:func:`ks` with a tolerance: the smallest distance that shifts of values within their tolerance can reach.

    With ``F(x)`` the share of values up to ``x``, of the values each lowered (``-``) or raised (``+``) by half of its
    room::

        max over x of  Fa+(x) - Fb-(x),  Fb+(x) - Fa-(x),  0

    Values that differ by less than the mean of their rooms are not told apart; without room it is :func:`ks`.

    Args:
        a: one sample, not empty.
        b: the other.
        room_a: width of what counts as the same, for each value of ``a``.
        room_b: the same for ``b``.
    """
    largest = 0.0
    for values, room, other_values, other_room in ((a, room_a, b, room_b), (b, room_b, a, room_a)):
        raised, lowered = np.sort(values + room / 2), np.sort(other_values - other_room / 2)
        # The difference grows only at raised values.
        share = np.searchsorted(raised, raised, side="right") / raised.size
        largest = max(largest, float((share - np.searchsorted(lowered, raised, side="right") / lowered.size).max()))
    return largest


def ks_floor(n: int, m: int) -> float:
    """Distance that :func:`ks` exceeds by chance in 1 % of cases: ``1.63 sqrt(1/n + 1/m)``, at most 1.

    Source: the asymptotic critical values of the two-sample Kolmogorov-Smirnov test (Smirnov 1948).
    """
    return min(1.0, 1.63 * float(np.sqrt(1 / n + 1 / m)))


def share_floor(a: float, n: int, b: float, m: int) -> float:
    """Difference that two shares ``a`` of ``n`` and ``b`` of ``m`` exceed by chance in 1 % of cases.

    ``2.58 sqrt(p (1 - p) (1/n + 1/m))`` with the pooled share ``p``; 0 where it always
    or never happens; at most 1.
    """
    pooled = (a * n + b * m) / (n + m)
    return min(1.0, 2.58 * float(np.sqrt(max(pooled * (1 - pooled), 0.0) * (1 / n + 1 / m))))


def total_variation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Half the sum of the differences of two distributions, given as amounts (not negative) of the same cases.

    0 where both are empty, 1 where one of them is.
    """
    total_a, total_b = float(a.sum()), float(b.sum())
    if not total_a or not total_b:
        return float(total_a != total_b)
    return float(np.abs(a / total_a - b / total_b).sum() / 2)


def variation_floor(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Twice the mean of :func:`total_variation` of two samples with these counts, by chance; at most 1.

    The difference of a case of probability ``p`` is nearly normal with variance ``p (1 - p) (1/n + 1/m)``,
    and its mean size is ``sqrt(2 / pi)`` of the standard deviation.
    """
    n, m = float(a.sum()), float(b.sum())
    if not n or not m:
        return 0.0
    p = (a + b) / (n + m)
    deviation = np.sqrt(p * (1 - p) * (1 / n + 1 / m))
    return min(1.0, float(np.sqrt(2 / np.pi) * deviation.sum()))


def jaccard(common: int, all_of_both: int) -> float:
    """One minus the share of elements common to two sets; 0 if both sets are empty."""
    return 1 - common / all_of_both if all_of_both else 0.0


def edit(a: NDArray[Any], b: NDArray[Any], *, windows: int = 8, scale_free: bool = False) -> float:
    """Normalised edit distance of two strings: insertions, deletions and replacements over the longer length.

    Exact for strings of up to :data:`EXACT` operations that differ, common beginning and end not counted.
    Longer ones are estimated from windows of :data:`WINDOW` operations at equal relative places (first and
    last at the ends of what differs)::

        (|n - m| + mean(edit(window of a, window of b) / WINDOW) * min(n, m)) / longer length

    which is at least the part that the difference of length makes certain.

    Args:
        a: one string, small integers that are not negative.
        b: the other.
        windows: how many windows, at least 1.
        scale_free: the mean over windows alone, so that a string is like a longer one of the same make.  Each window
            of the shorter string is looked for in the longer one, from one width before the same relative place to
            one width after it, and the least of its distances counts: windows may be out of step.
    """
    if not a.size or not b.size:
        return float(a.size != b.size)
    if scale_free:
        return _of_windows_anywhere(a, b, windows)
    longest = max(a.size, b.size)
    a, b = _different(a, b)
    if min(a.size, b.size) == 0:
        return float(max(a.size, b.size) / longest)
    if max(a.size, b.size) <= EXACT:
        return _levenshtein(a, b) / longest
    shorter = min(a.size, b.size)
    return float((abs(a.size - b.size) + _by_windows(a, b, windows) * shorter) / longest)


def _by_windows(a: NDArray[Any], b: NDArray[Any], windows: int) -> float:
    width = min(WINDOW, a.size, b.size)
    most = max(a.size, b.size) - width
    places = np.linspace(0, 1, min(windows, most + 1)) if most else np.zeros(1)
    total = 0.0
    for place in places:
        first_a, first_b = round(place * (a.size - width)), round(place * (b.size - width))
        total += _levenshtein(*_different(a[first_a : first_a + width], b[first_b : first_b + width])) / width
    return total / places.size


def _of_windows_anywhere(a: NDArray[Any], b: NDArray[Any], windows: int) -> float:
    short, long = (a, b) if a.size <= b.size else (b, a)
    width = min(WINDOW, short.size)
    places = np.linspace(0, 1, min(windows, long.size - width + 1))
    total = 0.0
    for place in places:
        first, first_long = round(place * (short.size - width)), round(place * (long.size - width))
        window = short[first : first + width]
        if not np.array_equal(window, long[first_long : first_long + width]):
            total += _levenshtein(window, long[max(0, first_long - width) : first_long + 2 * width], True) / width
    return total / places.size


def _different(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both strings without their common prefix and suffix, which need no edit."""
    size = min(a.size, b.size)
    head = _common(a[:size], b[:size])
    a, b = a[head:], b[head:]
    size -= head
    tail = _common(a[a.size - size :][::-1], b[b.size - size :][::-1])
    return a[: a.size - tail], b[: b.size - tail]


def _common(a: NDArray[Any], b: NDArray[Any]) -> int:
    other = np.flatnonzero(a != b)
    return int(other[0]) if other.size else a.size


def _levenshtein(a: NDArray[Any], b: NDArray[Any], anywhere: bool = False) -> int:
    """Levenshtein distance, bit-parallel: a column of the table is one long integer.

    ``anywhere``: the least distance of ``a`` from any part of ``b``.

    Source: H. Hyyrö, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", 2003,
    after G. Myers 1999.
    """
    if not a.size or not b.size:
        return int(max(a.size, b.size))
    height = a.size
    places: dict[int, int] = {}
    for letter in np.unique(a).tolist():
        bits = np.packbits(a == letter, bitorder="little")
        places[letter] = int.from_bytes(bits.tobytes(), "little")
    full = (1 << height) - 1
    last = 1 << (height - 1)
    up, down, score = full, 0, height  # vertical differences +1 and -1
    least, begins = height, 0 if anywhere else 1  # where it may begin anywhere, the first row of the table is 0
    for letter in b.tolist():
        equal = places.get(letter, 0)
        diagonal = equal | down
        equal = (((equal & up) + up) ^ up) | equal
        right = down | (full & ~(equal | up))
        left = up & equal
        if right & last:
            score += 1
        elif left & last:
            score -= 1
        least = min(least, score)
        right = ((right << 1) | begins) & full
        left = (left << 1) & full
        up = left | (full & ~(diagonal | right))
        down = right & diagonal
    return least if anywhere else score


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float | None:
    """Cosine of two vectors, each entry divided by the larger of both; None if a vector has length 0.

    Source: H. Devarajan et al., "DLIO: A Data-Centric Benchmark for Scientific Deep Learning
    Applications", CCGrid 2021, section V.B.
    """
    largest = np.maximum(np.abs(a), np.abs(b))
    largest[largest == 0] = 1
    a, b = a / largest, b / largest
    lengths = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / lengths if lengths else None
