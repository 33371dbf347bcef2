"""Simulated storage for tests and benchmarks: reads of given files take a known latency, bandwidth and jitter.

The library of :mod:`dlio_torch.data.engines.replay_reads` answers the reads of the files from memory; environment
variables make it take the time of a storage (``memory_reads_delay.h`` states the model).  All processes that are
started with them share one storage: its pipe serves one request at a time.  The library stands behind the one that
records calls, which therefore sees slow calls.  A process that asks for ``loader.replay=reads`` is not delayed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.data.engines.replay_reads import DELAY_VARIABLE, FILES_VARIABLE, waiting_environment

_SHARED = struct.Struct("=7Q")  # struct delay of memory_reads_delay.h
_NS = 1e9


@dataclass(frozen=True)
class StorageDelay:
    """Time that a simulated storage takes for a read: latency + jitter, then the wait for the pipe and bytes / rate.

    Attributes:
        latency_s: seconds that every request takes, whatever its size.
        bytes_per_s: rate of the pipe that all requests share, in B/s; 0: no limit.
        jitter_s: upper bound of a uniformly distributed part of the latency, s.
        seed: of the jitter.
    """

    latency_s: float
    bytes_per_s: float = 0.0
    jitter_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class DelayedReads:
    """Reads that a simulated storage has answered.

    Attributes:
        count: number of reads that returned data.
        bytes: that they returned.
    """

    count: int
    bytes: int


def delayed_environment(delay: StorageDelay, files: Iterable[Path], folder: Path) -> dict[str, str]:
    """Environment variables of programs that read these files from a new simulated storage.

    Args:
        delay: time that the storage takes.
        files: that lie on it; others are read from where they are.
        folder: for the state of the storage; exists while the programs run.

    Raises:
        NativeUnavailable: there is no library and none can be compiled.
    """
    listed, state = folder / "files", folder / "state"
    listed.write_bytes(b"".join(os.fsencode(file.absolute()) + b"\n" for file in files))
    nanoseconds = (round(seconds * _NS) for seconds in (delay.latency_s, delay.jitter_s))
    state.write_bytes(_SHARED.pack(*nanoseconds, round(delay.bytes_per_s), delay.seed, 0, 0, 0))
    return {**waiting_environment(), FILES_VARIABLE: str(listed), DELAY_VARIABLE: str(state)}


def delayed_reads(folder: Path) -> DelayedReads:
    """Reads that the simulated storage with its state in ``folder`` has answered so far."""
    return DelayedReads(*_SHARED.unpack((folder / "state").read_bytes())[-2:])
