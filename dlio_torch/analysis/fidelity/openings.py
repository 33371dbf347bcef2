"""What a process does with a file each time that it opens it.

A program that opens a file for each pass, or each sample, does the same thing again after each open; one that keeps it
open does it once.  Figures that go on over an open, or that count what is done at an open, therefore change with the
number of steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.fidelity.sides import Side
from dlio_torch.analysis.fidelity.stretches import weighted_median
from dlio_torch.analysis.io.groups import group
from dlio_torch.trace.calls import OPEN

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def openings(side: Side, sees_opens: bool) -> Ints:
    """How often the thread of each call has opened its file by then; 0 for all where not both sides tell of opens."""
    found = np.zeros(len(side.calls), np.int64)
    if not sees_opens or not found.size:
        return found
    sequence, first = _threads_and_files(side)
    opened = np.cumsum(side.is_class(OPEN)[sequence])
    before: Ints = opened[first] - side.is_class(OPEN)[sequence][first]
    found[sequence] = opened - np.repeat(before, np.diff(np.append(first, sequence.size)))
    return found


def after_beginning(side: Side, name: str, opening: Ints) -> Bools:
    """Which reads (or writes) follow the beginning of their opening: the calls before the first large one.

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
    found = np.zeros(size.size, bool)
    found[sequence] = count > np.repeat(before, np.diff(np.append(first, sequence.size)))
    return moves & found


def _threads_and_files(side: Side, *more: Ints) -> tuple[Ints, Ints]:
    """The calls by thread and file, each group in order of time, and where each group begins."""
    columns = [side.calls[name].to_numpy() for name in ("rank", "pid", "tid")]
    return group([*columns, side.file, *more]).sort(side.calls["start_ns"].to_numpy(), stable=True)
