"""Format ``extents``: raw files that are read by recorded requests, for data that no known format explains.

A "file" of the data set is a folder: ``requests.npz`` (see :mod:`dlio_torch.formats.extents.requests_file`), and
``files/000/000000`` and so on, the files of the recording.  A sample is one array of bytes: all that its requests read,
in their order.

A generated folder keeps, of each sample that it holds, every request with its call, size and order, its position
within a page, and which requests read the same bytes; of each file that these use, the sizes of what they read, in the
same order in the file.  More samples than recorded: the recording repeats with files of its own.  Fewer: whole samples
are left out, with the files that only they use, and the other files lose what only they read.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.extents.content import file_content
from dlio_torch.formats.extents.facts import FILES, REQUESTS
from dlio_torch.formats.extents.folder_plan import FolderPlan, copy_of, folder_files, plan_folder
from dlio_torch.formats.extents.layout import folder_layout
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.extents.raw_files import write_raw_files, written_bytes
from dlio_torch.formats.extents.reader import ExtentsReader, check_files, requests_of
from dlio_torch.formats.extents.requests import DTYPES, Requests
from dlio_torch.formats.extents.requests_file import kept_requests, write_requests
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.ownership.names import literal, numbers

ARRAY = "data"
"""Name of the array of a sample."""

_HEADERS = 400  # bytes of an archive for each array


class ExtentsFormat(Format):
    """Recorded requests on folders of raw files."""

    name: ClassVar[str] = "extents"
    suffix: ClassVar[str] = ".extents"
    in_folders: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.options: ExtentsConfig = config.of(ExtentsConfig)
        is_given = config.path is not None and not self.options.requests
        self._spec = _given_spec(config) if is_given else _recorded_spec(self.recorded)

    @property
    def recorded(self) -> Requests:
        """The recorded requests that folders are generated from.

        Raises:
            ConfigError: none are given, or the file cannot be used.
        """
        if not self.options.requests:
            raise ConfigError(
                "dataset.extents.requests is empty, so that no data can be generated",
                hint="set dataset.extents.requests to the requests.npz of a fitted recording, or dataset.path to a "
                "folder of raw files",
            )
        try:
            return kept_requests(self.options.requests)
        except DataError as error:
            raise ConfigError(
                f"dataset.extents.requests={self.options.requests}: {error.message}",
                hint="name the requests.npz that fit wrote beside its recipe",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}  # workers do not need it

    # --- what a sample is ---

    def specs(self) -> list[ArraySpec]:
        return [self._spec]

    def expected(self, sample: int) -> Sample:
        recorded = self.recorded
        copy, row = copy_of(sample, recorded.num_samples)
        low, high = recorded.sample_first[row : row + 2].tolist()
        chosen = low + np.flatnonzero(recorded.reads[low:high])
        columns = recorded.request_file, recorded.request_offset, recorded.request_bytes
        rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
        pieces = [file_content(self.seed, copy, file, offset, size) for file, offset, size in rows]
        return {ARRAY: np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)}

    def sample_bytes(self) -> float:
        if self.options.requests:
            return float(max(1.0, self.recorded.sample_bytes.mean()))
        (field,) = self.config.fields
        return float(field.length_mean or field.shape[0])

    @cached_property
    def _plan(self) -> FolderPlan:
        """Plan of the first folder."""
        return plan_folder(self.recorded, 0, self.config.samples_per_file)

    def stored_bytes(self) -> float:
        if not self.options.requests:
            return self.sample_bytes()
        table = sum(getattr(self._plan.requests, name).nbytes + _HEADERS for name in DTYPES)
        return float(written_bytes(self._plan.requests) + table) / self.config.samples_per_file

    def sharing(self) -> float:
        if not self.options.requests:
            return 1.0
        return max(1.0, float(self._plan.requests.sample_bytes.sum() / max(1, self._plan.file_bytes)))

    def files_per_sample(self) -> int:
        return max(1, _most_files(self.recorded)) if self.options.requests else 1

    # --- its files ---

    def layout_options(self) -> dict[str, Any]:
        return {"format": self.name, "requests": self.recorded.digest if self.options.requests else ""}

    def is_there(self, path: Path) -> bool:
        return (path / REQUESTS).is_file() and (path / FILES).is_dir()

    def files(self, path: Path) -> list[Path]:
        try:
            return [path / REQUESTS, *folder_files(path, kept_requests(str(path / REQUESTS)))]
        except DataError:  # it is named when it is read
            return [path / REQUESTS]

    def stored_size(self, path: str) -> int | None:
        if not self.is_there(Path(path)):
            return None
        try:
            return sum(file.stat().st_size for file in self.files(Path(path)))
        except OSError:  # it is being removed
            return None

    def listed(self, name: str) -> list[str]:
        folder = f"{name}{literal(self.suffix)}"
        return [f"{folder}/{REQUESTS}", f"{folder}/{FILES}/{numbers(digits=3)}/{numbers(digits=6)}"]

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        plan = plan_folder(self.recorded, first_sample, num_samples)
        (path / FILES).mkdir(parents=True, exist_ok=True)
        write_raw_files(path, plan, self.seed, pool)
        write_requests(path / REQUESTS, plan.requests, compressed=False)

    def inspect(self, path: Path) -> FileInfo:
        requests = requests_of(path, self._spec)
        check_files(path, requests)
        details = {"raw_files": len(requests.file_bytes), "requests": len(requests.request_call)}
        return FileInfo(requests.num_samples, details)

    # --- reading ---

    def open(self, path: Path, recorder: Recorder = NULL) -> ExtentsReader:
        return ExtentsReader(path, self._spec)

    def layout(self, path: Path) -> FileLayout:
        return folder_layout(path, requests_of(path, self._spec), ARRAY)


def _recorded_spec(requests: Requests) -> ArraySpec:
    size = requests.same_bytes
    return ArraySpec(ARRAY, np.dtype(np.uint8), () if size is None else (size,), variable=size is None)


def _given_spec(config: DatasetConfig) -> ArraySpec:
    """The array that ``dataset.fields`` state, which existing folders need.

    Raises:
        ConfigError: they state something else than one array of bytes.
    """
    specs = specs_of(config.fields)
    if len(specs) != 1 or specs[0].dtype != np.uint8 or len(specs[0].shape) != (0 if specs[0].variable else 1):
        raise ConfigError(
            "dataset.fields: a sample of recorded requests is one array of bytes",
            hint="set dataset.fields to what `inspect` prints for the folder, or use dataset=auto",
        )
    return specs[0]


def _most_files(requests: Requests) -> int:
    """Most files that a sample uses."""
    sample = np.repeat(np.arange(requests.num_samples), np.diff(requests.sample_first))
    file = requests.request_file[requests.sample_first[0] : requests.sample_first[-1]]
    pairs = np.unique(np.stack([sample, file]), axis=1)
    return int(np.bincount(pairs[0], minlength=1).max())
