"""Divides recorded request times into a request's latency, the transfer, and the wait behind other requests.

Model: the one of :mod:`dlio_torch.analysis.storage_queue`.  Requests leave the shared pipe in the order of their ends,
so a pipe that transfers a byte in ``s`` seconds leaves these traces, where ``before`` is the last end of a large
request before this one's end (large: at least half of the largest; small ones hardly occupy the pipe)::

    end = max(start + latency, before) + s * bytes

    end - before >= s * bytes     the pipe delivers nothing faster
    end - before >  s * bytes     the request found the pipe idle: latency = end - start - s * bytes
    end - before =  s * bytes     it waited: latency <= before - start, an upper bound
    end - start  >= s * bytes     its transfer is a part of it

:func:`seconds_per_byte` takes the ``s`` with which the first line predicts the ends of large requests best, from the
median latency of requests of their kind.  A prediction that is far better than that of a constant time of each request
is evidence enough, even of few requests, and where some requests break the last line: the kernel had read a part of
their bytes ahead, or the storage grants bytes for idle time.  Where it explains little more than a constant time does,
the pipe was always busy, if the ends are equally far apart; that distance gives ``s``.  Else requests hardly waited for
each other, and ``s`` is the one that the closest ends allow: the storage was never seen to be faster.

:func:`latencies` takes the exact latencies as they are, and draws those of waiting requests from the distribution of
all (product-limit estimate for left-censored observations; Kaplan and Meier, 1958) below their bound, so that no wait
counts twice.

Limits: a storage of several independent servers looks like one pipe with the rate of all; a rate that grows with the
number of requests is not seen beyond the recorded number; requests that never overlapped tell nothing about a shared
pipe, and none is assumed.  Waits that are not longer than the noise of the recorded ends are not seen.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.producers import Floats
from dlio_torch.analysis.storage_requests import StorageRequests
from dlio_torch.iotrace.figures.intervals import Ints

_LEAST = 5  # large overlapping requests from which on their ends tell a rate that explains the times decisively,
_MANY = 20  # and any rate
_CLOSEST = 0.02  # share of the requests whose ends may be closer than the pipe allows: ends are recorded inexactly
_RIGID = 0.75  # closest distance of ends, relative to the median one, above which the pipe is always busy
_JUST_BELOW = 0.95  # of the closest distance: a faster pipe would never have held a request up
_BETTER = 0.7  # error, relative to that of constant times, below which the pipe explains the times
_DECISIVE = 0.2  # the same error, below which few requests, or requests faster than the pipe, are no objection
_STEPS = 120  # candidate rates
_MOST = 20_000  # requests that tell a rate: tenths of a second
_SLOWEST, _FASTEST = 1.25, 0.02  # candidates, relative to the median distance of ends
_OUTLIER = 3.0  # usual durations: errors that are larger count no more
_AT_ONCE = 1.05  # an end within so many transfer times after the end before means that the request waited,
_INEXACT = 0.05  # and within this share of a usual duration more


def seconds_per_byte(requests: StorageRequests) -> float:
    """Time in which the shared pipe transfers a byte, s; 0 where requests did not overlap enough to tell.

    Args:
        requests: of all ranks.
    """
    pipe = _Pipe(_first(requests, _MOST))
    overlapping = pipe.distances_per_byte.size
    if overlapping < _LEAST:
        return 0.0
    best, error = pipe.best(pipe.usual)
    if error < _DECISIVE:
        return best
    return _rate_of_shortest(pipe) if overlapping >= _MANY else 0.0


def _rate_of_shortest(pipe: _Pipe) -> float:
    """Time per byte where no request was transferred faster than the pipe allows, s."""
    best, error = pipe.best(pipe.slowest)
    if error < _BETTER:
        return best
    typical, closest = pipe.distances(pipe.slowest)
    return typical if closest > _RIGID * typical else closest


def _first(requests: StorageRequests, count: int) -> StorageRequests:
    return StorageRequests(*(getattr(requests, field.name)[:count] for field in fields(requests)))


def latencies(requests: StorageRequests, per_byte: float) -> Floats:
    """Seconds that each request takes without transfer and without the wait behind others.

    Args:
        requests: of all ranks.
        per_byte: time in which the shared pipe transfers a byte, s.
    """
    latency = np.maximum((requests.end - requests.start) * 1e-9 - requests.bytes * per_byte, 0.0)
    if per_byte <= 0:
        return latency
    waited, longest = _Pipe(requests).waits(per_byte)
    latency = np.minimum(latency, longest)
    random = np.random.default_rng(0)
    for kind in np.unique(requests.kind[waited]):
        mine = np.flatnonzero((requests.kind == kind) & (requests.bytes > 0))
        latency[mine] = _drawn(latency[mine], waited[mine], random)
    return latency


def _drawn(latency: Floats, bound: NDArray[np.bool_], random: np.random.Generator) -> Floats:
    """Replaces values that are upper bounds by draws from the distribution of all values, below the bound."""
    order = np.argsort(latency, kind="stable")
    exact = ~bound[order]
    if not exact.any():
        return latency
    # Share of values up to each one: the product over the larger exact values of 1 - 1 / (number of values up to it).
    factor = np.where(exact, 1 - 1 / np.arange(1, latency.size + 1), 1.0)
    share = np.append(np.cumprod(factor[::-1])[::-1][1:], 1.0)
    values, shares = latency[order][exact], share[exact]
    drawn = latency.copy()
    most = np.searchsorted(values, latency[bound], side="right") - 1
    level = random.random(most.size) * shares[np.maximum(most, 0)]
    place = np.minimum(np.searchsorted(shares, level), np.maximum(most, 0))
    drawn[bound] = np.where(most >= 0, values[place], latency[bound])
    return drawn


class _Pipe:
    """Requests that moved bytes, in the order in which they left the pipe.

    Attributes:
        distances_per_byte: for each large request that overlapped with another, the time from the end of that one to
            its own, divided by its bytes, s.
        slowest: largest time per byte with which the shortest large requests can have been transferred, s.
        usual: the same for the median of the large requests, s.
    """

    def __init__(self, requests: StorageRequests) -> None:
        self._requests = requests.start.size
        self._rows = rows = np.flatnonzero(requests.bytes > 0)
        self._start: Floats = requests.start[rows].astype(np.float64) * 1e-9
        self._end: Floats = requests.end[rows].astype(np.float64) * 1e-9
        self._bytes, self._kind = requests.bytes[rows].astype(float), requests.kind[rows]
        large = self._bytes >= 0.5 * self._bytes.max(initial=0.0)
        self._usual = float(np.median((self._end - self._start)[large])) if rows.size else 0.0
        self._before = _ends_before(self._end, large, _INEXACT * self._usual)
        self._overlaps = self._start < self._before
        self._judged = self._overlaps & large
        lengths = (self._end - self._start)[large] / self._bytes[large] if rows.size else np.zeros(1)
        self.slowest, self.usual = float(np.quantile(lengths, _CLOSEST)), float(np.median(lengths))
        self.distances_per_byte: Floats = (self._end - self._before)[self._judged] / self._bytes[self._judged]

    def waits(self, per_byte: float) -> tuple[NDArray[np.bool_], Floats]:
        """For each of all requests, whether it waited behind another one, and then the bound of its latency, s.

        A request that should have arrived while a large one was transferred, and left the pipe after it, waited, too,
        even if its thread noticed that late, by less than another transfer.
        """
        at_once = self._waited(per_byte)
        usual = _medians(self._end - self._start - per_byte * self._bytes, self._kind, ~at_once)
        waited, longest = np.zeros(self._requests, bool), np.full(self._requests, np.inf)
        late = self._end - self._before <= per_byte * (self._bytes + self._bytes.max(initial=0.0))
        waited[self._rows] = at_once | (late & (self._start + usual < self._before))
        longest[self._rows] = np.where(waited[self._rows], np.maximum(self._before - self._start, 0.0), np.inf)
        return waited, longest

    def _waited(self, per_byte: float) -> NDArray[np.bool_]:
        longest = _AT_ONCE * per_byte * self._bytes + _INEXACT * self._usual
        at_once: NDArray[np.bool_] = self._overlaps & (self._end - self._before <= longest)
        return at_once

    def distances(self, slowest: float) -> tuple[float, float]:
        """Median and closest distance per byte, s, at the most ``slowest``; there is at least one distance."""
        median, closest = np.quantile(self.distances_per_byte, (0.5, _CLOSEST)).tolist()
        typical = max(0.0, min(slowest, median))
        return typical, min(typical, max(0.0, closest))

    def best(self, slowest: float) -> tuple[float, float]:
        """The time per byte up to ``slowest`` that predicts the ends best, s, and its error.

        The error is relative to that of constant times.
        """
        typical, closest = self.distances(slowest)
        constant = self.error_of_constant_times()
        if typical <= 0 or constant <= 0:
            return 0.0, math.inf
        fastest = max(_FASTEST * typical, _JUST_BELOW * closest)
        candidates = np.geomspace(fastest, min(slowest, _SLOWEST * typical), _STEPS)
        errors = np.array([self.error(float(candidate)) for candidate in candidates])
        return float(candidates[errors.argmin()]), float(errors.min() / constant)

    def error(self, per_byte: float) -> float:
        """Mean difference between the ends of large requests and those that a pipe predicts, s."""
        transfer = per_byte * self._bytes
        usual = _medians(self._end - self._start - transfer, self._kind, ~self._waited(per_byte))
        return self._error(np.maximum(self._start + usual, self._before) + transfer)

    def error_of_constant_times(self) -> float:
        """The same difference, where all requests of a kind take equally long."""
        return self._error(self._start + _medians(self._end - self._start, self._kind, ~self._overlaps))

    def _error(self, predicted: Floats) -> float:
        error = np.abs(self._end - predicted)[self._judged]
        return float(np.minimum(error, _OUTLIER * self._usual).mean())


def _ends_before(end: Floats, large: NDArray[np.bool_], inexact: float) -> Floats:
    """For each request, the end of the last large one before its end; -inf where there is none.

    The end of a small request that left the pipe right after a large one may be recorded before that one's.
    """
    ends = np.concatenate(([-np.inf], end[large]))
    place = np.searchsorted(ends, end + inexact, side="right") - 1
    place[large] = np.arange(np.count_nonzero(large))
    before: Floats = ends[place]
    return before


def _medians(values: Floats, kind: Ints, chosen: NDArray[np.bool_]) -> Floats:
    """For each row, the median of the chosen values of its kind; their smallest value where few are chosen."""
    medians = np.zeros(values.size)
    for number in np.unique(kind):
        mine = kind == number
        known = values[mine & chosen]
        medians[mine] = np.median(known) if known.size >= 5 else values[mine].min()
    return np.maximum(medians, 0.0)
