"""Requests per second and latency of the storage, which a system file describes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlio_torch.errors import PreconditionError
from dlio_torch.storage.local.device_limits import LEAST_REQUEST, Cached, ReadWorkload
from dlio_torch.storage.local.stored_limits import load_or_measure

_THREADS = 16


@dataclass(frozen=True)
class RequestRate:
    """Rates of small random reads.

    Attributes:
        requests_per_s: read calls per second of several threads; ``None``: not measured.
        latency_s: mean time of a read call of a single thread; ``None``: not measured.
        rate_how: measurement of the rate.
        latency_how: measurement of the latency.
        why: reason that nothing was measured; empty if it was.
    """

    requests_per_s: float | None = None
    latency_s: float | None = None
    rate_how: str = ""
    latency_how: str = ""
    why: str = ""

    def to_record(self) -> dict[str, Any]:
        """The figures as JSON-ready values."""
        return asdict(self)


def measure_requests(folder: Path, seconds: float) -> RequestRate:
    """Measure small random reads past the page cache; where the file system refuses them, of an evicted file.

    Args:
        folder: an existing folder on the storage, which can be written.
        seconds: longest time of each of two measurements.
    """
    reasons = []
    ways: tuple[Cached, ...] = ("direct", "cold")
    for cached in ways:
        workloads = [ReadWorkload("random", cached, LEAST_REQUEST, threads) for threads in (_THREADS, 1)]
        try:
            rate, single = load_or_measure(folder, workloads, seconds=seconds)
        except PreconditionError as error:
            reasons.append(error.message)
            continue
        return RequestRate(rate.calls_per_s, 1 / single.calls_per_s, str(rate), str(single))
    return RequestRate(why="; ".join(dict.fromkeys(reasons)))
