"""Step log: one record per step with the times of fetch, copy, compute, allreduce and checkpoint.

A rank appends records to a binary journal next to its CSV file.  A record costs less than a microsecond, and a run
that is killed loses the records of about its last second.
:meth:`StepLog.close` turns the journal into the CSV file; :func:`read_steps` reads either.

Columns of the CSV file, times in seconds with nanosecond digits::

    rank,epoch,step,phase,start_s,fetch_s,copy_s,compute_s,requested_s,allreduce_s,checkpoint_s,samples,bytes

``start_s`` is ``time.perf_counter()`` when the step asked for its batch; the step runs to the start of
the next one.  ``copy_s`` is the time from the arrival of a batch until the GPU holds it, 0 where
batches stay in the host's memory.  ``compute_s`` is the duration of the emulated compute, ``requested_s`` the duration
that the configuration asks for.  ``bytes`` is the size of the tensors that the loader delivered.
"""

from __future__ import annotations

import csv
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlio_torch.errors import DataError, DlioError, RunFailed
from dlio_torch.files.atomic_file import renamed, temporary_name
from dlio_torch.syserrors import refused, warn

TIMED = ("fetch", "copy", "compute", "allreduce", "checkpoint")
"""Timed parts of a step, in their order; each has a column ``<part>_ns``."""
PHASES = ("warmup", "train", "eval")
"""Names of the phases in the CSV file; a record holds the index."""
WARMUP, TRAIN, EVAL = range(3)

STEP_DTYPE = np.dtype(
    [
        ("epoch", "<i4"),  # from 1
        ("step", "<i4"),  # from 1 within the epoch
        ("phase", "u1"),  # WARMUP, TRAIN or EVAL
        ("start_ns", "<i8"),
        ("fetch_ns", "<i8"),
        ("copy_ns", "<i8"),
        ("compute_ns", "<i8"),
        ("requested_ns", "<i8"),
        ("allreduce_ns", "<i8"),
        ("checkpoint_ns", "<i8"),
        ("samples", "<i4"),
        ("bytes", "<i8"),
    ]
)
"""One step of one rank."""

Steps = NDArray[np.void]
"""Structured array of :data:`STEP_DTYPE`, in the order of time."""

_RECORD = struct.Struct("<iiBqqqqqqqiq")
_HEADER = struct.Struct("<8si")  # magic, rank
_MAGIC = b"DLIOSTP2"
_COLUMNS = ("rank", *(f"{name[:-3]}_s" if name.endswith("_ns") else name for name in STEP_DTYPE.names or ()))
# Columns of older versions, which copied no batch to a GPU.
_COLUMNS_BEFORE_COPY = tuple(name for name in _COLUMNS if name != "copy_s")
_FLUSH_NS = 10**9
_LARGEST_READ = 1 << 28


class StepTotals(NamedTuple):
    """Sums over the training steps that were flushed, warm-up included."""

    samples: int = 0
    bytes: int = 0
    requested_ns: int = 0


class StepLog:
    """Step records of one rank.

    If the journal cannot be written any more, a line is printed, the run goes on, and later records stay in memory
    until :func:`write_steps` writes them at the end.

    Args:
        path: the CSV file that :meth:`close` writes; the journal is ``<path>.journal`` until then.
        rank: number of this process.

    Raises:
        DlioError: the journal cannot be made (see :mod:`dlio_torch.syserrors`).
    """

    totals = StepTotals()
    """Sums over the training steps that were flushed."""

    def __init__(self, path: Path | str, rank: int = 0) -> None:
        self.path = Path(path)
        self.rank = rank
        self._pending: list[bytes] = []
        self._written = 0  # bytes of records in the journal, which memory does not hold
        self.flushed_ns = time.perf_counter_ns()
        """Time of the last flush, on the clock of the steps."""
        self._journal: int | None = None
        self._failed = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._journal = os.open(journal_of(self.path), flags, 0o666)
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        self._write(_HEADER.pack(_MAGIC, rank))

    def append(
        self,
        epoch: int,
        step: int,
        phase: int,
        *,
        start_ns: int,
        fetch_ns: int,
        copy_ns: int,
        compute_ns: int,
        requested_ns: int,
        allreduce_ns: int,
        checkpoint_ns: int,
        samples: int,
        bytes: int,
    ) -> None:
        """Record a step; fields as in :data:`STEP_DTYPE`.  Does no I/O."""
        self._pending.append(
            _RECORD.pack(
                epoch,
                step,
                phase,
                start_ns,
                fetch_ns,
                copy_ns,
                compute_ns,
                requested_ns,
                allreduce_ns,
                checkpoint_ns,
                samples,
                bytes,
            )
        )

    def maybe_flush(self) -> None:
        """Write pending records if the last flush was a second ago; call it outside timed parts."""
        if time.perf_counter_ns() - self.flushed_ns >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Write pending records to the journal; they stay in memory if it cannot be written."""
        block = b"".join(self._pending)
        if block and self._write(block):
            self._written += len(block)
            self._pending.clear()
            self._count(np.frombuffer(block, STEP_DTYPE))
        self.flushed_ns = time.perf_counter_ns()

    def _count(self, steps: Steps) -> None:
        train = steps[steps["phase"] != EVAL]
        self.totals = StepTotals(*(before + int(train[name].sum()) for name, before in self.totals._asdict().items()))

    def to_array(self) -> Steps:
        """All records so far, read back from the journal.

        Raises:
            RunFailed: the journal cannot be read, or another program cut it.
        """
        return np.frombuffer(b"".join((*self._read_back(), *self._pending)), dtype=STEP_DTYPE)

    def close(self) -> None:
        """Write the CSV file and remove the journal; a second call does nothing."""
        if self._journal is None:
            return
        self.flush()
        try:
            write_steps(self.path, {self.rank: self.to_array()})
            journal_of(self.path).unlink(missing_ok=True)
        except (OSError, DlioError) as error:
            self._fail(error)
        finally:
            os.close(self._journal)
            self._journal = None

    def _read_back(self) -> Iterator[bytes]:
        if self._journal is None:
            raise ValueError("the step log is closed")
        offset, end = _HEADER.size, _HEADER.size + self._written
        while offset < end:
            try:
                block = os.pread(self._journal, min(end - offset, _LARGEST_READ), offset)
            except OSError as error:
                raise _cannot_read_back(self.path, error.strerror or str(error)) from error
            if not block:
                raise _cannot_read_back(self.path, f"the file ends after {offset} of {end} bytes")
            yield block
            offset += len(block)

    def _write(self, block: bytes) -> bool:
        if self._journal is None:
            raise ValueError("the step log is closed")
        if self._failed:
            return False
        try:
            done = 0
            while done < len(block):
                done += os.write(self._journal, block[done:] if done else block)
        except OSError as error:
            self._fail(error)
        return not self._failed

    def _fail(self, error: OSError | DlioError) -> None:
        """Report that step times cannot be written, and continue without the files."""
        if not self._failed:
            self._failed = True
            line = error if isinstance(error, DlioError) else _cannot_write(self.path, error)
            warn(f"{line}; the run continues, but if the run is killed, the step times are lost")


def journal_of(path: Path) -> Path:
    """Path of the journal that holds the records of the CSV file ``path`` during the run."""
    return path.with_name(f"{path.name}.journal")


def write_steps(path: Path | str, steps_by_rank: Mapping[int, Steps]) -> None:
    """Write the step records of several ranks to a CSV file, which gets its name when it is complete.

    Raises:
        DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    path = Path(path)
    try:
        with (
            renamed(temporary_name(path), path) as temporary,
            open(temporary, "w", encoding="ascii", newline="") as file,
        ):
            file.write(",".join(_COLUMNS) + "\n")
            for rank in sorted(steps_by_rank):
                file.writelines(_lines(rank, steps_by_rank[rank]))
    except OSError as error:
        raise _cannot_write(path, error) from error


def read_steps(path: Path | str) -> dict[int, Steps]:
    """Read step records by rank from a CSV file, or from its journal if the run was killed.

    An incomplete last record is left out.

    Raises:
        DataError: there is neither file, or it is damaged; the message names it.
    """
    path = Path(path)
    try:
        if path.exists() or not journal_of(path).exists():
            return _read_csv(path)
        path = journal_of(path)
        return _read_journal(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", hint="the run ended before it wrote this file; repeat the run"
        ) from error
    except (KeyError, ValueError, OverflowError, csv.Error, struct.error) as error:
        raise DataError(f"{path} is damaged: {error}", hint="repeat the run") from error


def _lines(rank: int, steps: Steps) -> Iterator[str]:
    for epoch, step, phase, *times, samples, size in steps.tolist():
        seconds = ",".join(f"{ns // 10**9}.{ns % 10**9:09d}" for ns in times)
        yield f"{rank},{epoch},{step},{PHASES[phase]},{seconds},{samples},{size}\n"


def _read_csv(path: Path) -> dict[int, Steps]:
    records: dict[int, list[tuple[int, ...]]] = {}
    with open(path, encoding="ascii", newline="") as file:
        rows: Iterator[list[str]] = csv.reader(line for line in file if line.endswith("\n"))
        columns = tuple(next(rows, []))
        if columns not in (_COLUMNS, _COLUMNS_BEFORE_COPY):
            raise ValueError(f"the columns are {list(columns)}")
        if columns != _COLUMNS:
            column = _COLUMNS.index("copy_s")
            rows = ([*row[:column], "0", *row[column:]] for row in rows)
        for rank, epoch, step, phase, *times, samples, size in rows:
            nanoseconds = (_nanoseconds(text) for text in times)
            record = (int(epoch), int(step), PHASES.index(phase), *nanoseconds, int(samples), int(size))
            records.setdefault(int(rank), []).append(record)
    return {rank: np.array(of_rank, dtype=STEP_DTYPE) for rank, of_rank in records.items()}


def _read_journal(path: Path) -> dict[int, Steps]:
    content = path.read_bytes()
    if not content:  # the run was ended just after it made the file
        return {}
    magic, rank = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError("the file is not a journal of steps")
    body = content[_HEADER.size :]
    whole = len(body) - len(body) % STEP_DTYPE.itemsize
    return {rank: np.frombuffer(body[:whole], dtype=STEP_DTYPE)}


def _nanoseconds(text: str) -> int:
    # Through a float, a monotonic clock of some days would lose its last digits.
    whole, _, digits = text.partition(".")
    return int(whole) * 10**9 + int(digits.ljust(9, "0")[:9])


def _cannot_write(path: Path, error: OSError) -> DlioError:
    return refused(
        f"step times cannot be written to {path}", error, elsewhere="set output.root to a writable file system"
    )


def _cannot_read_back(path: Path, why: str) -> RunFailed:
    return RunFailed(
        f"step times cannot be read back from {journal_of(path)}: {why}",
        hint="do not change the run directory during the run",
    )
