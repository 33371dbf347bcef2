"""Result of a rank's training: step records and figures of each epoch."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field, fields

import numpy as np
import numpy.typing as npt

from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.train.order import OrderPart
from dlio_torch.train.readers import ReaderFigures
from dlio_torch.train.steps import Steps

Seen = npt.NDArray[np.int64]
"""Sample numbers in the order of delivery."""


@dataclass
class EpochFigures:
    """Figures of one epoch of one rank.

    Attributes:
        epoch: number, from 1.
        seconds: wall time of the epoch, evaluation and checkpoints included.
        io: I/O counters of the kernel; ``None`` if it has none.
        idle_core_s: idle seconds of the cores that the rank may run on, summed; ``None`` if the kernel does not count
            them.
        order: contribution of this rank's batches to the checksum of the order of samples.
        first_step: the first step (from 1) that this run did of the epoch.
    """

    epoch: int
    seconds: float
    io: IoCounters | None
    idle_core_s: float | None = None
    order: OrderPart | None = None
    first_step: int = 1


class EpochLog(Iterable[EpochFigures]):
    """Figures of many epochs, stored in about a hundred bytes per epoch.

    Numbers are doubles, exact up to 2**53; a missing one is NaN.
    """

    def __init__(self) -> None:
        self._values = array("d")

    def append(self, figures: EpochFigures) -> None:
        """Add an epoch."""
        io = astuple(figures.io) if figures.io is not None else (None,) * _IO
        order = astuple(figures.order) if figures.order is not None else (None,) * _ORDER
        row = (figures.epoch, figures.seconds, figures.idle_core_s, figures.first_step, *io, *order)
        self._values.extend(math.nan if value is None else value for value in row)

    def __len__(self) -> int:
        return len(self._values) // _ROW

    def __iter__(self) -> Iterator[EpochFigures]:
        for begin in range(0, len(self._values), _ROW):
            row = self._values[begin : begin + _ROW]
            epoch, seconds, idle_core_s, first_step = row[:4]
            io = [int(value) for value in row[4 : 4 + _IO] if not math.isnan(value)]
            order = [int(value) for value in row[4 + _IO :] if not math.isnan(value)]
            yield EpochFigures(
                int(epoch),
                seconds,
                IoCounters(*io) if io else None,
                None if math.isnan(idle_core_s) else idle_core_s,
                OrderPart(*order) if order else None,
                int(first_step),
            )


_IO, _ORDER = len(fields(IoCounters)), len(fields(OrderPart))
_ROW = 4 + _IO + _ORDER


class CopyTimes:
    """Times of copies of batches to a GPU that ran ahead of their steps.

    Attributes:
        ns: time of each copy on the GPU.
        sizes: bytes of each copied batch.
    """

    def __init__(self) -> None:
        self.ns, self.sizes = array("q"), array("q")

    def append(self, ns: int, size: int) -> None:
        """Add a copy."""
        self.ns.append(ns)
        self.sizes.append(size)


class DecodeTimes:
    """Times in which a GPU decoded batches.

    Attributes:
        ns: time of each batch.
        samples: samples of each batch.
    """

    def __init__(self) -> None:
        self.ns, self.samples = array("q"), array("q")

    def append(self, ns: int, samples: int) -> None:
        """Add a batch."""
        self.ns.append(ns)
        self.samples.append(samples)


@dataclass
class TrainResult:
    """Result of a rank's training.

    Attributes:
        steps: one record a step.
        epochs: one entry an epoch.
        saves: times of the checkpoints saved.
        checkpoint_bytes: bytes of these checkpoints, and of what was written before the first.
        save_peak_bytes: peak memory of the saves above the level before them, ``None`` if it was not measured.
        restored: times of the restore before the first step, ``None`` on a rank that restores nothing.
        gpu: name of the GPU to which batches were copied, ``None`` where they stayed in the host's memory.
        copies_ahead: copies that ran ahead of their steps, ``None`` where each batch was copied in its step, or not.
        decoding: times in which the GPU decoded batches, ``None`` where it decoded none.
        pauses: begin and end, by ``time.perf_counter_ns``, of work between epochs that only the measurement needs; no
            other time includes them.
        readers: worker processes and reader threads at the end of the first epoch with measured steps; ``None`` if the
            trainer reads, or no such epoch ended.
    """

    steps: Steps
    epochs: EpochLog = field(default_factory=EpochLog)
    saves: list[SaveTimes] = field(default_factory=list)
    checkpoint_bytes: int = 0
    save_peak_bytes: int | None = None
    restored: RestoreTimes | None = None
    gpu: str | None = None
    copies_ahead: CopyTimes | None = None
    decoding: DecodeTimes | None = None
    pauses: list[tuple[int, int]] = field(default_factory=list)
    readers: ReaderFigures | None = None
