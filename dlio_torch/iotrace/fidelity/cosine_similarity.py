"""Computes the cosine similarity of two runs as the DLIO paper defines it, for comparison with that paper only.

The cosine of two vectors of eleven factors, each divided by the larger of its two values.  The paper lists "overall
I/O time, amount of data, transfer size distribution (min, max, mean, median), achieved bandwidth per
operation, percentage of sequential and consecutive accesses, and the number of files"; bandwidth enters by mean
and median, as in the paper's figure 8.

Source: H. Devarajan et al., "DLIO: A Data-Centric Benchmark for Scientific Deep Learning Applications",
CCGrid 2021, section V.B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlio_torch.iotrace.events.call_names import READ, WRITE
from dlio_torch.iotrace.fidelity import distances
from dlio_torch.iotrace.fidelity.sides import Side
from dlio_torch.iotrace.figures import access_order
from dlio_torch.iotrace.figures.intervals import length, union

CAVEAT = (
    "for comparison with the DLIO paper only: the value ignores a common factor (all figures times 100 still give "
    "1.0), and on a real log random offsets gave 0.94, two halves of the same run 0.83"
)


@dataclass(frozen=True)
class Parity:
    """The DLIO paper's cosine similarity, and its two vectors.

    Args:
        cosine: 0 to 1, 1 for vectors that differ by a factor only.
        factors: name, value of A, value of B.
        caveat: what to think of it.
    """

    cosine: float
    factors: tuple[tuple[str, float, float], ...]
    caveat: str = CAVEAT


def parity(a: Side, b: Side) -> Parity | None:
    """Cosine similarity of two sides; None if a side has no transfers."""
    of_a, of_b = _factors(a), _factors(b)
    if of_a is None or of_b is None:
        return None
    cosine = distances.cosine(np.array(list(of_a.values())), np.array(list(of_b.values())))
    if cosine is None:
        return None
    return Parity(cosine, tuple((name, value, of_b[name]) for name, value in of_a.items()))


def _factors(side: Side) -> dict[str, float] | None:
    """The vector of a side: figures of its successful reads and writes."""
    rows = side.transfers(READ) | side.transfers(WRITE)
    if not rows.any():
        return None
    calls = side.calls[rows]
    start, end, size = (calls[name].to_numpy() for name in ("start_ns", "end_ns", "bytes"))
    took = end - start
    rates = size[took > 0] / (took[took > 0] * 1e-9)
    shares = access_order.shares(calls)["all"]
    return {
        "I/O time (union), s": length(union(start, end)) * 1e-9,
        "bytes": float(size.sum()),
        "smallest transfer, bytes": float(size.min()),
        "largest transfer, bytes": float(size.max()),
        "mean transfer, bytes": float(size.mean()),
        "median transfer, bytes": float(np.median(size)),
        "mean bandwidth of a call, bytes/s": float(rates.mean()) if rates.size else 0.0,
        "median bandwidth of a call, bytes/s": float(np.median(rates)) if rates.size else 0.0,
        "sequential share": shares.sequential or 0.0,
        "consecutive share": shares.consecutive or 0.0,
        "files": float(np.unique(side.file[rows]).size),
    }
