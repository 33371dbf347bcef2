"""What the trainer of a rank is put together from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlio_torch.compute.emulate import Emulator
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.trace.profiler import ProfilerSession
from dlio_torch.trace.spans import Recorder
from dlio_torch.train.checkpoint import Checkpointer
from dlio_torch.train.result import Seen
from dlio_torch.train.steps import StepLog
from dlio_torch.train.to_device import DeviceCopies

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stages:
    """What a step goes through.

    Attributes:
        loader: training batches.
        eval_loader: evaluation batches; ``None`` if this run evaluates nothing.
        copies: takes batches to the GPU; ``None``: they stay where the loader put them.
        emulator: spends the compute time.
        checkpointer: saves and restores.
    """

    loader: BatchLoader
    eval_loader: BatchLoader | None
    copies: DeviceCopies | None
    emulator: Emulator
    checkpointer: Checkpointer


@dataclass(frozen=True)
class Instruments:
    """What records the steps.

    Attributes:
        log: takes a record of each step.
        recorder: takes the spans, after the loop.
        profiler: torch.profiler around the first steps.
        progress: called now and then with steps done and steps to do.
    """

    log: StepLog
    recorder: Recorder
    profiler: ProfilerSession
    progress: Progress


@dataclass(frozen=True)
class LoopStart:
    """Where the loop begins.

    Attributes:
        first: the epoch to begin with (from 1), and its steps that were done before; the loader begins there, too.
            Where these are all of them, only the evaluation of that epoch is left.
        evaluated: of a run that goes on after a checkpoint, evaluations that were begun before it, and their steps;
            one that was due after its step comes first.
        restore: read a checkpoint before the first step.
    """

    first: tuple[int, int] = (1, 0)
    evaluated: tuple[int, int] | None = None
    restore: bool = False


@dataclass(frozen=True)
class Hooks:
    """What the loop calls besides, where it is given.

    Attributes:
        samples_seen: at the end of each epoch, with its number and those of the samples that came; raises where some
            did not come as often as they should.
        before_epoch: on all ranks before an epoch, with its number, from the second one on; what it takes is a pause.
        after_step: on all ranks after each step, with the epoch, its steps so far, and whether all are done.
    """

    samples_seen: Callable[[int, Seen], None] | None = None
    before_epoch: Callable[[int], object] | None = None
    after_step: Callable[[int, int, bool], object] | None = None
