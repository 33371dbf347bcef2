"""Layout of identical samples in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Copies, Ints
from dlio_torch.native.memory import address_of


class Repeated(ArrayLayout):
    """Layout of samples that are copies of one array.

    Args:
        path: the file that there is not.
        array: a sample; kept as long as this object.
        num_samples: how many there are.
    """

    in_memory = True

    def __init__(self, path: Path, array: npt.NDArray[np.generic], num_samples: int) -> None:
        self.path = path
        self._array = np.ascontiguousarray(array)
        self._num_samples = num_samples

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), self._array.nbytes, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Copies:
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self._num_samples:
            raise DataError(
                f"the synthetic data set has {self._num_samples} samples, but samples {int(rows.min())} to "
                f"{int(rows.max())} were requested"
            )
        return Copies(np.full(len(rows), address_of(self._array), np.int64), self.sizes(rows), into)
