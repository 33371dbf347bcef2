"""Times and bytes of saving and of reading a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SaveTimes:
    """Times and bytes of one save of one rank.

    A time is ``None`` if the layout has no such part, or if its library does not tell.

    Attributes:
        step: training steps done when the save began.
        start_ns: begin of the save, by ``time.perf_counter_ns``.
        stall_s: seconds in which the training stood still.
        durable_s: seconds from the begin until all files of this rank had their final names, and had been flushed if
            the save flushes.
        bytes: bytes of this rank's files.
        plan_s: seconds of planning which rank writes which tensor.
        stage_s: seconds of copying tensors to memory from which they are written.
        write_s: seconds of serialising and writing.
        fsync_s: seconds of flushing.
    """

    step: int
    start_ns: int
    stall_s: float
    durable_s: float
    bytes: int
    plan_s: float | None = None
    stage_s: float | None = None
    write_s: float | None = None
    fsync_s: float | None = None


@dataclass(frozen=True)
class RestoreTimes:
    """Times and bytes of reading one checkpoint on one rank; times as in :class:`SaveTimes`.

    Attributes:
        seconds: seconds of the whole restore.
        bytes: bytes of the files or parts of files that this rank read.
        metadata_s: seconds of reading the description of the files.
        plan_s: seconds of planning which rank reads what.
        read_s: seconds of reading and deserialising.
        copy_s: seconds of copying to the tensors of the training.
    """

    seconds: float
    bytes: int
    metadata_s: float | None = None
    plan_s: float | None = None
    read_s: float | None = None
    copy_s: float | None = None
