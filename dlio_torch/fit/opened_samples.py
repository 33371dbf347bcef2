"""Samples that a program without a loader opens one after another, in batches between pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlio_torch.fit.read_pauses import CallColumns, Ints, gaps_between, longest, usual_number
from dlio_torch.iotrace.events.call_names import CLASSES, OPEN
from dlio_torch.units import format_duration

_MOST = 0.75
"""Share of the batches that have the same number of samples."""


@dataclass(frozen=True)
class OpenedSamples:
    """Readings of a recording, process by process.

    Attributes:
        readings: positions of the calls of each reading.
        batches: number of the batch of each reading.
        evidence: how they are told apart, one line.
    """

    readings: Sequence[Ints]
    batches: Ints
    evidence: str


def opened_samples(table: CallColumns, streams: Sequence[Ints]) -> OpenedSamples | None:
    """Readings from an open to the next one, whose batches lie between pauses.

    Args:
        table: the calls.
        streams: positions of the calls of each process.

    Returns:
        ``None`` if a program reads not from each open on, or has not several samples in each batch.
    """
    parts = [_from_open_to_open(table, stream) for stream in streams]
    if not all(len(of_process) > 1 and all(map(table.total, of_process)) for of_process in parts):
        return None
    edges = [(np.array([rows[0] for rows in part]), np.array([rows[-1] for rows in part])) for part in parts]
    gaps = [gaps_between(table, *of_process) for of_process in edges]
    count, shortest = usual_number(gaps)
    cuts = [longest(of_process, count - 1) + 1 for of_process in gaps]
    sizes = [np.diff([0, *of_process.tolist(), len(part)]) for of_process, part in zip(cuts, parts, strict=True)]
    every = np.concatenate(sizes)
    usual = int(np.bincount(every).argmax())
    if count < 2 or usual < 2 or (every == usual).mean() < _MOST:
        return None
    evidence = (
        f"a sample is what is read from an open to the next one; pauses of at least {format_duration(shortest / 1e9)} "
        f"lie between {usual} samples and the next ones"
    )
    readings = [reading for of_process in parts for reading in of_process]
    return OpenedSamples(readings, np.repeat(np.arange(len(every)), every), evidence)


def _from_open_to_open(table: CallColumns, stream: Ints) -> list[Ints]:
    """Calls of a process from each open to the next one."""
    opens = np.flatnonzero(table.code[stream] == CLASSES.index(OPEN))
    return np.split(stream, opens)[1:]
