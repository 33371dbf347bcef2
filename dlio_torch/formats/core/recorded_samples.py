"""Recorded samples for a format that repeats recorded calls: which calls each sample made.

A format that repeats the calls of a recording on raw files, instead of storing samples in a layout of its own, names a
function in :attr:`~dlio_torch.formats.core.facts.FormatFacts.replay` that takes these samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.facts import FormatFacts
from dlio_torch.formats.core.registry import all_facts, load_function

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordedSamples:
    """Calls of recorded samples.

    Attributes:
        calls: columns ``op, file, offset, bytes`` of the event table, in the order of time.
        samples: positions in ``calls`` of the calls of each sample.
        file_bytes: size of each file by its path, in the order of the files.
        start: positions of the calls of a process before its first sample.
        opening: positions of the calls with which a process opens a file that stays open, by path.
    """

    calls: pd.DataFrame
    samples: Sequence[Ints]
    file_bytes: Mapping[str, int]
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    opening: Mapping[str, Ints] = field(default_factory=dict)


def replaying_format() -> FormatFacts:
    """The format that repeats recorded calls."""
    return next(about for about in all_facts() if about.replay)


def write_recorded_samples(samples: RecordedSamples, path: Path) -> None:
    """Writes the file from which the replaying format generates data.

    Raises:
        DataError: the calls do not fit the sizes of the files.
        OSError: the file cannot be written.
    """
    about = replaying_format()
    load_function(about.name, about.replay)(samples, path)
