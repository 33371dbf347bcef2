"""The manifest: which sample lies where.

A generated data set is a folder of its own, ``<root>/<recipe>-<fingerprint>``, whose name depends on
everything that its bytes depend on.  Another chunk size is another folder, so nothing stale is ever
read, and files of earlier runs are found again.  ``dlio_torch.json`` in it describes the data set.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.formats.base import Format

DESCRIPTION = "dlio_torch.json"
VERSION = 1
SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Manifest:
    """The files of one split, and the samples in them.

    Attributes:
        split: ``train`` or ``eval``.
        num_samples: samples in all files.
        first_sample: number of the split's first sample; its content depends on it.
    """

    split: str
    num_samples: int
    first_sample: int
    _folder: Path
    _files: Sequence[str] | None  # names, or None: the pattern of generated files
    _suffix: str
    _ends: Sequence[int]  # after each file, the samples so far; one entry: all files are alike
    _num_files: int
    _subfolders: int

    @property
    def num_files(self) -> int:
        """Files of the split."""
        return self._num_files

    def path(self, file: int) -> Path:
        """Path of file number ``file``."""
        if self._files is not None:
            return self._folder / self._files[file]
        name = f"{self.split}_{file:07d}{self._suffix}"
        if self._subfolders:
            return self._folder / self.split / f"{file % self._subfolders:05d}" / name
        return self._folder / self.split / name

    def count(self, file: int) -> int:
        """Samples of file number ``file``."""
        if len(self._ends) == 1:
            return self._ends[0]
        return self._ends[file] - (self._ends[file - 1] if file else 0)

    def counts(self) -> list[int]:
        """Samples of each file."""
        return [self.count(file) for file in range(self._num_files)]

    def locate(self, sample: int) -> tuple[int, int]:
        """File and position in it of a sample, 0 to ``num_samples - 1``."""
        if len(self._ends) == 1:
            return divmod(sample, self._ends[0])
        file = bisect.bisect_right(self._ends, sample)
        return file, sample - (self._ends[file - 1] if file else 0)

    def locate_all(self, samples: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As :meth:`locate`, of many samples at once."""
        if len(self._ends) == 1:
            files, rows = np.divmod(samples, self._ends[0])
            return files, rows
        ends = np.asarray(self._ends, np.int64)
        found = np.searchsorted(ends, samples, side="right").astype(np.int64)
        return found, samples - np.where(found > 0, ends[found - 1], 0)


def data_folder(config: Config, fmt: Format) -> Path:
    """The folder of the generated data set that ``config`` describes."""
    name = Path(config.recipe).stem or "custom"
    return Path(config.dataset.root) / f"{name}-{fingerprint(config, fmt)}"


def fingerprint(config: Config, fmt: Format) -> str:
    """Eight digits that depend on every option that the bytes of a file depend on.

    The number of files is not among them: more files of the same kind extend a data set.
    """
    dataset = config.dataset
    basis = {
        "version": VERSION,
        "seed": config.seed,
        "samples_per_file": [dataset.samples_per_file, dataset.samples_per_file_eval],
        "subfolders": dataset.num_subfolders,
        "layout": fmt.layout_options(),
        "layout_version": fmt.layout_version,
    }
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:8]


def generated(config: Config, fmt: Format) -> dict[str, Manifest]:
    """Manifests of the generated data set, by split; an empty evaluation split is left out."""
    dataset, folder = config.dataset, data_folder(config, fmt)
    made = {}
    amounts = {
        "train": (dataset.num_files, dataset.samples_per_file, 0),
        # Far behind the training samples, so that adding training files leaves evaluation files alone.
        "eval": (dataset.num_files_eval, dataset.samples_per_file_eval, 1 << 40),
    }
    for split, (files, per_file, first) in amounts.items():
        if files and per_file:
            made[split] = Manifest(
                split, files * per_file, first, folder, None, fmt.suffix, [per_file], files, dataset.num_subfolders
            )
    return made


def existing(config: Config, fmt: Format) -> tuple[Manifest, dict[str, Any]]:
    """The manifest of the files at ``dataset.path``, each checked to have the format's layout.

    Returns:
        The manifest, and what the first file looks like inside.

    Raises:
        DataError: nothing is there, or a file does not fit; names it and what does not fit.
    """
    path = Path(config.dataset.path or "")
    if not path.exists():
        raise DataError(f"dataset.path={str(path)!r} does not exist", hint="correct the path, or leave it out")
    if fmt.is_there(path) or path.is_file():
        folder, names = path.parent, [path.name]
    else:
        folder = path
        names = sorted(str(p.relative_to(path)) for p in path.rglob(f"*{fmt.suffix}") if fmt.is_there(p))
        if not names:
            raise DataError(
                f"dataset.path={str(path)!r} holds no *{fmt.suffix} file",
                hint=f"dataset.format={fmt.name} reads {fmt.suffix} files",
            )
    infos = [fmt.inspect(folder / name) for name in names]
    counts = [info.num_samples for info in infos]
    empty = [name for name, count in zip(names, counts, strict=True) if count == 0]
    if empty:
        raise DataError(f"{folder / empty[0]} holds no samples", hint="remove the file, or choose another path")
    manifest = Manifest("train", sum(counts), 0, folder, names, fmt.suffix, list(accumulate(counts)), len(names), 0)
    return manifest, infos[0].details


def describe(config: Config, fmt: Format) -> dict[str, Any]:
    """What ``dlio_torch.json`` says."""
    return {
        "version": VERSION,
        "recipe": config.recipe,
        "fingerprint": fingerprint(config, fmt),
        "seed": config.seed,
        "samples_per_file": config.dataset.samples_per_file,
        "samples_per_file_eval": config.dataset.samples_per_file_eval,
        "layout": fmt.layout_options(),
        "parameters": fmt.parameters(),
    }


def read_description(folder: Path) -> dict[str, Any] | None:
    """The contents of ``dlio_torch.json``; ``None`` if the folder has none yet.

    Raises:
        DataError: the file is damaged, or belongs to another data set.
    """
    path = folder / DESCRIPTION
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        parameters = found["parameters"]
        if not all(isinstance(value, float | int) for value in parameters.values()):
            raise TypeError("parameters that are no numbers")
        if not folder.name.endswith(f"-{found['fingerprint']}"):
            raise ValueError(f"it describes the data set {found['fingerprint']}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}", hint="see dataset.root") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error})", hint=f"remove {folder} and generate again") from error
    return dict(found)


def check_present(manifests: dict[str, Manifest], fmt: Format) -> None:
    """Raise unless every file is there.

    Raises:
        PreconditionError: names the first missing file and how many are missing.
    """
    for manifest in manifests.values():
        missing = [file for file in range(manifest.num_files) if not fmt.is_there(manifest.path(file))]
        if missing:
            raise PreconditionError(
                f"{manifest.path(missing[0])} does not exist "
                f"({len(missing)} of {manifest.num_files} files are missing)",
                hint="write them with the verb generate or run",
            )
