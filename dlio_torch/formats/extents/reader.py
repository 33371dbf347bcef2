"""Reader of folders of raw files: a sample is what its recorded requests read."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.extents.call_replay import CallReplay
from dlio_torch.formats.extents.facts import REQUESTS
from dlio_torch.formats.extents.folder_plan import folder_files
from dlio_torch.formats.extents.requests import Requests
from dlio_torch.formats.extents.requests_file import kept_requests


def requests_of(folder: Path, spec: ArraySpec) -> Requests:
    """The requests of a folder.

    Args:
        folder: as :meth:`~dlio_torch.formats.core.format.Format.write` makes it.
        spec: the array of a sample.

    Raises:
        DataError: no such folder, or samples of other sizes.
    """
    requests = kept_requests(str(folder / REQUESTS))
    if not spec.variable and requests.same_bytes != spec.shape[0]:
        row = int((requests.sample_bytes != spec.shape[0]).argmax())
        raise DataError(
            f"{folder}: sample {row} has {int(requests.sample_bytes[row])} bytes, but the array {spec.name} has "
            f"{spec.shape[0]}",
            hint="set dataset.fields to what inspect prints for this folder",
        )
    return requests


def check_files(folder: Path, requests: Requests) -> None:
    """Raise unless all files of a folder have the sizes that its requests state.

    Raises:
        DataError: names the first file that is missing or has another size.
    """
    for path, size in zip(folder_files(folder, requests), requests.file_bytes.tolist(), strict=True):
        with os_errors(path):
            present = os.stat(path).st_size
        if present != size:
            raise DataError(
                f"{path} has {present} bytes, but {REQUESTS} states {size}",
                hint="the folder is incomplete; generate or fetch the data again",
            )


class ExtentsReader(Reader):
    """Reader of one folder; makes the requests of its start when it is opened.

    Args:
        folder: the folder.
        spec: the array of a sample.

    Raises:
        DataError: no such folder, or a file of it is damaged.
    """

    num_samples: int

    def __init__(self, folder: Path, spec: ArraySpec) -> None:
        self._folder, self._spec = folder, spec
        self._requests = requests_of(folder, spec)
        self.num_samples = self._requests.num_samples
        self._replay = CallReplay(folder, self._requests)
        try:
            self._replay.run(*self._requests.start_first.tolist())
        except BaseException:
            self.close()
            raise

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._folder, self.num_samples, first, count)
        bounds = pairwise(self._requests.sample_first[first : first + count + 1].tolist())
        for number, (low, high) in enumerate(bounds):
            memory = self._memory(first + number, buffer, position + number)
            self._replay.run(low, high, memory.data)
            if self._spec.variable:
                buffer.put(self._spec.name, position + number, memory)

    def _memory(self, row: int, buffer: BatchBuffer, position: int) -> npt.NDArray[Any]:
        """Memory of a sample."""
        if self._spec.variable:
            return np.empty(int(self._requests.sample_bytes[row]), np.uint8)
        memory: npt.NDArray[Any] = buffer.fixed[self._spec.name][position]
        return memory

    def close(self) -> None:
        self._replay.close()
