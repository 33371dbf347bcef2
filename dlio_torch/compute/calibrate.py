"""Calibration: measures how precisely this machine can wait for a given time.

It is measured once, stored for each machine, and reported with each run.  A spin needs no rate:
it reads the clock until the deadline, so nothing drifts with the processor's frequency.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch import native
from dlio_torch.compute.timers import DEFAULT_SPIN_TAIL_NS, Timer, open_timer
from dlio_torch.files.atomic_file import write_private

SCHEMA_VERSION = 1
PROBE_NS = 1_000_000
PROBES = 60
# A tail longer than this would make a sleep of the usual step a spin.
MOST_SPIN_TAIL_NS = 500_000
_TAIL_STEP_NS = 10_000
_SHARE_NS = 20_000_000


@dataclass(frozen=True)
class TimerError:
    """Time beyond the requested time, in nanoseconds: median, 95th percentile, maximum."""

    median_ns: int
    p95_ns: int
    max_ns: int

    @classmethod
    def of(cls, errors_ns: Sequence[int]) -> TimerError:
        """Summarises single errors in ns (at least one)."""
        median, p95 = np.percentile(errors_ns, [50, 95])
        return cls(round(median), round(p95), max(errors_ns))


@dataclass(frozen=True)
class Calibration:
    """Timing precision of one machine.

    Attributes:
        schema: version of this record.
        host: host name.
        cpu_model: from ``/proc/cpuinfo``.
        kernel: release of the operating system.
        measured_at: UTC, ISO 8601.
        implementation: origin of the timer's code, see :class:`.timers.Timer`; ``how`` in records.
        exact: whether it is native code.
        spin_tail_ns: last part of a sleep that is spun; at least 100 µs, and more where the system's
            timer is later than that in one sleep of ten, up to 0.5 ms.
        sleep_alone: error of the system's absolute-deadline sleep of 1 ms without a tail.
        sleep: error of the same sleep with the tail.
        spin: error of a spin of 1 ms.
        spin_cpu_share: CPU time a spinning thread got over the wall time; below 1 where cores are
            shared with others, and spins and loader threads with them.
    """

    schema: int
    host: str
    cpu_model: str
    kernel: str
    measured_at: str
    implementation: str
    exact: bool
    spin_tail_ns: int
    sleep_alone: TimerError
    sleep: TimerError
    spin: TimerError
    spin_cpu_share: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as values for JSON."""
        return {"how" if name == "implementation" else name: value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Calibration:
        """Restores a record from the values of :meth:`to_dict`.

        Raises:
            ValueError: it is damaged, or of another version.
        """
        if not isinstance(values, dict) or values.get("schema") != SCHEMA_VERSION:
            raise ValueError("the calibration was written by another version")
        errors = ("sleep_alone", "sleep", "spin")
        try:
            parts: dict[str, Any] = {name: TimerError(**values[name]) for name in errors if name in values}
            rest = {"implementation" if name == "how" else name: value for name, value in values.items()}
            record = cls(**(rest | parts))
        except TypeError as error:
            raise ValueError(f"damaged calibration: {error}") from error
        if type(record.spin_tail_ns) is not int or not 0 <= record.spin_tail_ns <= MOST_SPIN_TAIL_NS:
            raise ValueError(f"damaged calibration: spin_tail_ns={record.spin_tail_ns}")
        return record


def measure(timer: Timer | None = None) -> Calibration:
    """Measure this machine; takes about 0.3 s.

    Args:
        timer: the timer to measure instead of the machine's best timer; it must have been opened without
            a spin tail.  It is not closed.
    """
    plain = timer or open_timer(spin_tail_ns=0)
    overshoots = [_error_ns(plain.sleep_until) for _ in range(PROBES)]
    tail_ns = choose_spin_tail_ns(overshoots)
    tailed = timer or open_timer(spin_tail_ns=tail_ns)
    slept = [_error_ns(tailed.sleep_until) for _ in range(PROBES)]
    spun = [_error_ns(plain.spin_until) for _ in range(PROBES)]
    wall, cpu = time.monotonic_ns(), time.thread_time_ns()
    plain.spin_until(wall + _SHARE_NS)
    share = (time.thread_time_ns() - cpu) / (time.monotonic_ns() - wall)
    return Calibration(
        schema=SCHEMA_VERSION,
        host=socket.gethostname(),
        cpu_model=_cpu_model(),
        kernel=platform.release(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        implementation=plain.implementation,
        exact=plain.exact,
        spin_tail_ns=tail_ns,
        sleep_alone=TimerError.of(overshoots),
        sleep=TimerError.of(slept),
        spin=TimerError.of(spun),
        spin_cpu_share=round(min(share, 1.0), 4),
    )


def choose_spin_tail_ns(overshoots_ns: Sequence[int]) -> int:
    """Returns the spin tail for sleeps with these errors: their 90th percentile, limited to 100 µs to 0.5 ms."""
    late = float(np.percentile(overshoots_ns, 90))
    rounded = -int(-late // _TAIL_STEP_NS) * _TAIL_STEP_NS
    return min(max(rounded, DEFAULT_SPIN_TAIL_NS), MOST_SPIN_TAIL_NS)


def load_or_measure(*, force: bool = False, folder: Path | None = None) -> Calibration:
    """Returns the stored calibration of this machine; measures and stores a calibration if none fits.

    A record fits that is whole and of the same processor, kernel and kind of timer.  Where it cannot
    be stored it is measured each time.

    Args:
        force: measure even if a record is stored.
        folder: where records lie; None: the user's cache folder.
    """
    path = (folder or native.cache_dir()) / _file_name()
    if not force:
        with contextlib.suppress(OSError, ValueError):
            stored = Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
            exact = open_timer().exact
            if (stored.cpu_model, stored.kernel, stored.exact) == (_cpu_model(), platform.release(), exact):
                return stored
    calibration = measure()
    with contextlib.suppress(OSError):
        write_private(path, json.dumps(calibration.to_dict(), indent=2) + "\n")
    return calibration


def _file_name() -> str:
    digest = hashlib.sha256(f"{socket.gethostname()}\0{platform.machine()}".encode()).hexdigest()
    return f"calibration-{digest[:16]}.json"


def _error_ns(wait: Callable[[int], int]) -> int:
    deadline = time.monotonic_ns() + PROBE_NS
    return wait(deadline) - deadline


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
