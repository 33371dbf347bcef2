"""Parts of a rank's trainer: stages of a step, instruments, start position, hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.compute.emulate import Emulator
from dlio_torch.data.engines.batch_loader import Batches, BatchLoader
from dlio_torch.formats.core.batch import Batch
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.iotrace.timeline.torch_profiler import ProfilerSession
from dlio_torch.train.readers import ReadingLoader
from dlio_torch.train.result import CopyTimes, DecodeTimes, Seen
from dlio_torch.train.steps import StepLog

Progress = Callable[[int, int], None]


class StepBatches(ReadingLoader, Protocol):
    """Source of the batches of training steps.

    Attributes:
        number: number of the batch that was taken last.
    """

    number: int

    def __len__(self) -> int:
        """Number of steps in an epoch."""

    def epoch(self, number: int) -> Batches:
        """The batches of an epoch."""


class StepCopies(Protocol):
    """Copies of the batches of steps to a GPU.

    Attributes:
        name: name of the GPU.
    """

    name: str

    def start(self, batch: Batch) -> None:
        """Start the copy of a batch, unless it was started before."""

    def finish(self) -> None:
        """Wait until the GPU holds the batch."""


@dataclass(frozen=True)
class Stages:
    """Stages that every step passes: fetch, copy, compute, allreduce, checkpoint.

    Attributes:
        loader: training batches.
        eval_loader: evaluation batches; ``None`` if this rank evaluates nothing.
        copies: copies training batches to the GPU; ``None`` leaves them in the host's memory.
        eval_copies: copies evaluation batches likewise.
        emulator: emulates the compute.
        checkpointer: saves and restores checkpoints.
        copies_ahead: times of copies that run ahead of their steps; ``None``: none do.
        decoding: times in which the GPU decodes batches, as a part of their copies; ``None``: it decodes none.
    """

    loader: StepBatches
    eval_loader: BatchLoader | None
    copies: StepCopies | None
    eval_copies: StepCopies | None
    emulator: Emulator
    checkpointer: Checkpointer
    copies_ahead: CopyTimes | None = None
    decoding: DecodeTimes | None = None


@dataclass(frozen=True)
class Instruments:
    """Instruments that record the steps.

    Attributes:
        log: takes a record of each step.
        recorder: takes the spans, after the loop.
        profiler: torch.profiler around the first steps.
        progress: called after steps with the number of steps done and the number of all steps.
        cpus: CPUs whose idle time is measured; empty: those of the trainer's thread.
    """

    log: StepLog
    recorder: Recorder
    profiler: ProfilerSession
    progress: Progress
    cpus: Collection[int] = ()


@dataclass(frozen=True)
class LoopStart:
    """Position at which the training loop starts.

    Attributes:
        first: epoch to begin with (from 1), and its steps that are done; the loader begins there, too.  If all steps
            are done, only the evaluation of that epoch is left.
        evaluated: for a resumed run, the evaluations before its checkpoint and their steps; an evaluation that was due
            after that checkpoint comes first.
        restore: whether a checkpoint is read before the first step.
    """

    first: tuple[int, int] = (1, 0)
    evaluated: tuple[int, int] | None = None
    restore: bool = False


@dataclass(frozen=True)
class Hooks:
    """Functions that the training loop calls.

    Attributes:
        samples_seen: called after each epoch with its number and the numbers of its samples; raises if a sample came
            more or less often than it should.
        before_epoch: called on all ranks before each epoch but the first, with its number; its duration is a pause.
        after_step: called on all ranks after each step with the epoch, its steps so far, and whether all are done.
    """

    samples_seen: Callable[[int, Seen], None] | None = None
    before_epoch: Callable[[int], object] | None = None
    after_step: Callable[[int, int, bool], object] | None = None
