"""Assigns the calls of a process on a file to the openings of the file.

A program that opens a file for each pass, or each sample, repeats the same calls after each open; a program that keeps
the file open makes them once.  Figures that continue over an open, or count calls at an open, therefore change with the
number of steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import OPEN
from dlio_torch.iotrace.fidelity.contiguous_reads import weighted_median
from dlio_torch.iotrace.fidelity.sides import Side
from dlio_torch.iotrace.figures.row_groups import group

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def openings(side: Side, sees_opens: bool) -> Ints:
    """Number of opens of a call's file by its thread, up to the call; all 0 unless both sides record opens."""
    numbers = np.zeros(len(side.calls), np.int64)
    if not sees_opens or not numbers.size:
        return numbers
    sequence, first = _threads_and_files(side)
    opened = np.cumsum(side.is_class(OPEN)[sequence])
    before: Ints = opened[first] - side.is_class(OPEN)[sequence][first]
    numbers[sequence] = opened - np.repeat(before, np.diff(np.append(first, sequence.size)))
    return numbers


def after_beginning(side: Side, name: str, opening: Ints) -> Bools:
    """Selects the reads (or writes) after the first large one of their opening.

    Large is half of the size up to which transfers move half of all bytes.  Before it lie headers and indices.

    Args:
        side: the calls.
        name: class of the transfers.
        opening: as :func:`openings` returns them.
    """
    moves = side.transfers(name)
    size = side.calls["bytes"].to_numpy()
    moved = size[moves & (size > 0)]
    if not moved.size:
        return moves
    large = moves & (2 * size >= weighted_median(moved))
    sequence, first = _threads_and_files(side, opening)
    count = np.cumsum(large[sequence])
    before: Ints = count[first] - large[sequence][first]
    after = np.zeros(size.size, bool)
    after[sequence] = count > np.repeat(before, np.diff(np.append(first, sequence.size)))
    return moves & after


def _threads_and_files(side: Side, *more: Ints) -> tuple[Ints, Ints]:
    """Order of the calls by thread, file and time, and the first index of each group."""
    columns = [side.calls[name].to_numpy() for name in ("rank", "pid", "tid")]
    return group([*columns, side.file, *more]).sort(side.calls["start_ns"].to_numpy(), stable=True)
