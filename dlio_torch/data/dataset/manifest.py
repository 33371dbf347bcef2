"""Manifest of a split: its files, and the file and position of each sample.

A generated data set is a folder of its own, ``<root>/<recipe>-<fingerprint>``, whose name depends on
everything that its bytes depend on.  Another chunk size is another folder, so nothing stale is ever
read, and files of earlier runs are found again.  ``dlio_torch.json`` in it describes the data set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config
from dlio_torch.config.validate_dataset import MOST_SAMPLES
from dlio_torch.data.dataset.existing_files import InspectedFiles, inspect_existing, list_existing
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.file_names import Names
from dlio_torch.data.dataset.visibility import check_seen
from dlio_torch.dist.base import Communicator, SingleCommunicator
from dlio_torch.errors import DataError, DlioError, PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.local.stored_paths import kind_of

VERSION = 1
SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Manifest:
    """Files of one split and the number of samples in each.

    Attributes:
        split: ``train`` or ``eval``.
        first_sample: number of the split's first sample; its content depends on it.
        bytes: of all files, of existing data; ``None``: of generated ones, which are looked at later.
    """

    split: str
    first_sample: int
    _counts: FileCounts
    _folder: Path
    _files: Sequence[str] | None  # names, or None: the pattern of generated files
    _suffix: str
    _subfolders: int = 0
    bytes: int | None = None

    @property
    def num_files(self) -> int:
        """Number of files of the split."""
        return len(self._counts)

    @property
    def num_samples(self) -> int:
        """Number of samples in all files."""
        return self._counts.total

    @property
    def folder(self) -> Path:
        """Folder below which all files lie."""
        return self._folder

    def moved(self, folder: Path) -> Manifest:
        """Returns a manifest of the same files below another folder."""
        return replace(self, _folder=folder)

    def part(self, files: range) -> Manifest:
        """Returns a manifest of consecutive files of this one."""
        names = [self.path_text(file).removeprefix(f"{self._folder}/") for file in files]
        counts = FileCounts(self._counts[files.start : files.stop])
        first = self.first_sample + self._counts.before(files.start)
        return replace(self, first_sample=first, _counts=counts, _files=Names(names), _subfolders=0, bytes=None)

    def path(self, file: int) -> Path:
        """Path of file number ``file``."""
        return Path(self.path_text(file))

    def path_text(self, file: int) -> str:
        """Same as :meth:`path`, but as text, which is much faster."""
        if self._files is not None:
            return f"{self._folder}/{self._files[file]}"
        name = f"{self.split}_{file:07d}{self._suffix}"
        if self._subfolders:
            return f"{self._folder}/{self.split}/{file % self._subfolders:05d}/{name}"
        return f"{self._folder}/{self.split}/{name}"

    def counts(self) -> FileCounts:
        """Number of samples of each file."""
        return self._counts

    def count(self, file: int) -> int:
        """Number of samples of file number ``file``."""
        return self._counts[file]

    def locate(self, sample: int) -> tuple[int, int]:
        """File number of a sample, and its position in that file; samples are 0 to ``num_samples - 1``."""
        return self._counts.locate(sample)

    def locate_all(self, samples: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Same as :meth:`locate`, for many samples at once."""
        return self._counts.locate_all(samples)


def data_folder(config: Config, fmt: Format) -> Path:
    """Folder of the generated data set that ``config`` describes."""
    name = Path(config.recipe).stem or "custom"
    return Path(config.dataset.root) / f"{name}-{fingerprint(config, fmt)}"


def fingerprint(config: Config, fmt: Format) -> str:
    """Eight-digit hash of all options that the bytes of a file depend on.

    The number of files is not among them: more files of the same kind extend a data set.
    """
    dataset = config.dataset
    basis: dict[str, Any] = {
        "version": VERSION,
        "seed": config.seed,
        "samples_per_file": [dataset.samples_per_file, dataset.samples_per_file_eval],
        "subfolders": dataset.num_subfolders,
        "layout": fmt.layout_options(),
        "layout_version": fmt.layout_version,
    }
    files = {once.name: [once.rows, [asdict(field) for field in once.fields]] for once in dataset.once if once.name}
    if files:
        basis["once"] = files
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:8]


def generated_manifests(config: Config, fmt: Format) -> dict[str, Manifest]:
    """Manifests of the generated data set, by split; an empty evaluation split is left out."""
    dataset, folder = config.dataset, data_folder(config, fmt)
    manifests = {}
    amounts = {
        "train": (dataset.num_files, dataset.samples_per_file, 0),
        # Far behind the training samples, so that adding training files leaves evaluation files alone.
        "eval": (dataset.num_files_eval, dataset.samples_per_file_eval, MOST_SAMPLES),
    }
    for split, (files, per_file, first) in amounts.items():
        if files and per_file:
            manifests[split] = Manifest(
                split, first, FileCounts([per_file], files), folder, None, fmt.suffix, dataset.num_subfolders
            )
    return manifests


def existing_manifest(config: Config, fmt: Format, comm: Communicator | None = None) -> tuple[Manifest, dict[str, Any]]:
    """The manifest of the files at ``dataset.path``, after checking that each file has the format's layout.

    Args:
        config: the experiment.
        fmt: its format.
        comm: the ranks, each of which looks into its share of the files; ``None``: this process alone.

    Returns:
        The manifest with the bytes of all files, and what the first file looks like inside.

    Raises:
        DataError: on rank 0; nothing is there, or a file does not fit; names it and what does not fit.
    """
    comm = comm or SingleCommunicator()
    folder, names = comm.broadcast_object(list_existing(config, fmt) if comm.rank == 0 else None) or (Path(), None)
    assert names is not None
    check_seen(folder / names[0], comm, "dataset.path")
    mine: InspectedFiles | DlioError
    try:
        mine = inspect_existing(folder, names[comm.rank :: comm.world_size], fmt)
    except DlioError as error:
        mine = error  # rank 0 raises it, so that of many the same one is shown
    everyone = comm.gather_objects(mine)
    listing = None
    if everyone is not None:
        counts = np.zeros(len(names), np.int64)
        size = 0
        details: dict[str, Any] = {}
        for rank, inspected in enumerate(everyone):
            if isinstance(inspected, DlioError):
                raise inspected
            counts[rank :: comm.world_size] = inspected[0]
            size += inspected[1]
            details = details or inspected[2]
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            name = names[int(empty[0])]
            if not fmt.leaves_out_damaged() or len(empty) == len(names):
                hint = "remove the file, or choose another dataset.path"
                raise DataError(f"{folder / name} holds no samples", hint=hint)
            details = {"damaged_files_left_out": len(empty), "first_left_out": name, **details}
        listing = counts, size, details
    listing = comm.broadcast_object(listing)
    assert listing is not None
    counts, size, details = listing
    if not counts.all():
        names = Names([names[int(number)] for number in np.flatnonzero(counts)])
        counts = counts[counts > 0]
    return Manifest("train", 0, FileCounts(counts), folder, names, fmt.suffix, bytes=size), details


def check_present(manifests: Mapping[str, Manifest], fmt: Format, comm: Communicator | None = None) -> int:
    """Raise on rank 0 unless every file exists; each rank checks its share of the files once.

    Args:
        manifests: the splits.
        fmt: knows when a file is there.
        comm: the ranks, all of which call this; ``None``: this process alone.

    Returns:
        Bytes of all files.

    Raises:
        PreconditionError: names the first missing file and how many are missing.
    """
    comm = comm or SingleCommunicator()
    total = 0
    for manifest in manifests.values():
        first, missing, size = -1, 0, 0
        for file in range(comm.rank, manifest.num_files, comm.world_size):
            stored = fmt.stored_size(manifest.path_text(file))
            if stored is None:
                first, missing = (file if first < 0 else first), missing + 1
            else:
                size += stored
        everyone = comm.gather_objects((first, missing, size)) or []
        if number := sum(missing for _, missing, _ in everyone):
            first = min(first for first, missing, _ in everyone if missing)
            raise PreconditionError(
                f"{_lacking(manifest.path(first), fmt)} ({number} of {manifest.num_files} files are missing)",
                hint="write the missing files with the verb generate or run",
            )
        total += sum(size for _, _, size in everyone)
    return int(comm.broadcast_object(total) or 0)


def _lacking(path: Path, fmt: Format) -> str:
    """Describes why a file of the data set is incomplete: the path of the bad file, and its problem."""
    kind = kind_of(path)
    if kind is None:
        return f"{path} does not exist"
    if not fmt.is_there(path):
        return f"{path} is {kind}"
    for companion in map(Path, fmt.companion_files(str(path))):
        kind = kind_of(companion)
        if not companion.is_file():
            return f"{companion} {'does not exist' if kind is None else f'is {kind}'}"
    return f"{path} is empty"
