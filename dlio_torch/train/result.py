"""What a rank has when its training is over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dlio_torch.environment import IoCounters
from dlio_torch.train.order import OrderPart
from dlio_torch.train.steps import Steps

Seen = npt.NDArray[np.int64]
"""Numbers of the samples that came, in their order."""


@dataclass
class EpochFigures:
    """What one epoch of one rank moved, beside its steps.

    Attributes:
        epoch: number, from 1.
        seconds: wall time of the epoch, evaluation and checkpoints included.
        io: what the kernel counted; ``None`` where it does not tell.
        idle_core_s: seconds that cores were idle meanwhile, added up over those that the rank may run on; ``None``
            where the kernel does not tell.
        order: what this rank's batches contribute to the checksum of the order of samples.
        first_step: the first step (from 1) that this run did of the epoch.
    """

    epoch: int
    seconds: float
    io: IoCounters | None
    idle_core_s: float | None = None
    order: OrderPart | None = None
    first_step: int = 1


@dataclass
class TrainResult:
    """What a rank brings home.

    Attributes:
        steps: one record a step.
        epochs: one entry an epoch.
        checkpoints: checkpoints saved.
        checkpoint_bytes: bytes saved.
        restore_s: time of the restore before the first step, ``None`` on a rank that restores nothing.
        restore_bytes: bytes restored, ``None`` likewise.
        gpu: name of the GPU to which batches were copied, ``None`` where they stayed in the host's memory.
        pauses: begin and end, by ``time.perf_counter_ns``, of what was done between epochs for the sake of the
            measurement alone; no part of any time.
    """

    steps: Steps
    epochs: list[EpochFigures] = field(default_factory=list)
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    restore_s: float | None = None
    restore_bytes: int | None = None
    gpu: str | None = None
    pauses: list[tuple[int, int]] = field(default_factory=list)
