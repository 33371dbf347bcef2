"""Hand-made calls of a program on its data files, for tests of what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from dlio_torch.formats.core.recreation import ObservedArray, ObservedReads


class ObservedCall(NamedTuple):
    """A call; what is left out does not matter."""

    op: str
    file: str
    offset: int = -1
    bytes: int = -1
    sample: int = -1
    batch: int = 0
    pid: int = 1
    tid: int = 1
    dataset: int = 0


def observed(
    files: Sequence[Path], calls: Sequence[ObservedCall] = (), samples: int | None = None, *arrays: ObservedArray
) -> ObservedReads:
    """Reads of a program on ``files``; ``samples`` is the length of its data set, ``arrays`` those of a sample."""
    table = pd.DataFrame(list(calls), columns=list(ObservedCall._fields))
    return ObservedReads(tuple(files), table, samples, tuple(arrays))


def array(path: str, *shape: int, dtype: str = "float32") -> ObservedArray:
    """An array of a sample as a batch holds it."""
    return ObservedArray(path, shape, dtype)
