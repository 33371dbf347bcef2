"""Numbered files of a data set to generate, and the search for missing files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.dist.base import Communicator
from dlio_torch.formats.core.format import Format


@dataclass(frozen=True)
class GeneratedFile:
    """File of a generated data set.

    Attributes:
        path: the file.
        name: the file's path below the folder of the data set.
        first_sample: number of its first sample in the data set.
        num_samples: samples in the file.
    """

    path: Path
    name: str
    first_sample: int
    num_samples: int


class GeneratedFiles:
    """Files of all splits by number, created on demand because there may be millions."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self._manifests = manifests

    def __len__(self) -> int:
        return sum(manifest.num_files for manifest in self._manifests)

    def __getitem__(self, number: int) -> GeneratedFile:
        for manifest in self._manifests:
            if number < manifest.num_files:
                count = manifest.count(number)  # the same in each generated file
                path = manifest.path(number)
                name = path.relative_to(manifest.folder).as_posix()
                return GeneratedFile(path, name, manifest.first_sample + number * count, count)
            number -= manifest.num_files
        raise IndexError(number)

    def shares(self, rank: int, world_size: int) -> Iterator[tuple[int, str]]:
        """Number and path of each file that this rank checks."""
        first = 0
        for manifest in self._manifests:
            for file in range((rank - first) % world_size, manifest.num_files, world_size):
                yield first + file, manifest.path_text(file)
            first += manifest.num_files

    def index_folders(self, fmt: Format) -> None:
        """Let the format write the index of each folder, if it has one."""
        if type(fmt).index_folder is Format.index_folder:
            return  # there may be millions of files
        folders: dict[Path, list[str]] = {}
        for manifest in self._manifests:
            for file in range(manifest.num_files):
                path = manifest.path(file)
                folders.setdefault(path.parent, []).append(path.name)
        for folder, names in folders.items():
            fmt.index_folder(folder, names)

    def samples(self, numbers: npt.NDArray[np.int64]) -> int:
        """Number of samples in the files of the given numbers."""
        first = total = 0
        for manifest in self._manifests:
            inside = numbers[(numbers >= first) & (numbers < first + manifest.num_files)] - first
            total += int(manifest.counts().array(inside).sum())
            first += manifest.num_files
        return total


def files_to_write(
    files: GeneratedFiles, fmt: Format, comm: Communicator, *, overwrite: bool
) -> tuple[npt.NDArray[np.int64], int]:
    """Numbers of the files to write (all, or files that are missing or lack companions), and bytes of the other files.

    Each rank looks at its share of the files, at each once; what they have found goes from rank to rank as a bit for
    each file.  With ``overwrite`` the numbers are those of all files, and the bytes those that are there already.
    """
    mine, size = np.zeros(len(range(comm.rank, len(files), comm.world_size)), bool), 0
    for number, path in files.shares(comm.rank, comm.world_size):
        stored = fmt.stored_size(path)
        if stored is None:
            mine[number // comm.world_size] = True
        else:
            size += stored
    everyone = comm.gather_objects((np.packbits(mine), size))
    missing, total = np.full(len(files), overwrite), 0
    for rank, (bits, there) in enumerate(everyone or []):
        part = missing[rank :: comm.world_size]
        part |= np.unpackbits(bits, count=len(part)).astype(bool)
        total += there
    packed = comm.broadcast_object((np.packbits(missing), total))
    assert packed is not None
    every, total = packed
    return np.flatnonzero(np.unpackbits(every, count=len(files))), total
