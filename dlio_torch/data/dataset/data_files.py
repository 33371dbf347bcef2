"""Paths of the files of a data set, for the preparation of the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.cache_state import thinned


class DataFiles:
    """Files of all splits, listed on demand because there may be millions.

    Args:
        fmt: tells which files belong together.
        manifests: the splits; one that stands for two counts once.
        size: bytes of all files of samples, the same on all ranks.
        beside: files that are read beside the samples.

    Attributes:
        bytes: of all files.
    """

    def __init__(self, fmt: Format, manifests: Iterable[Manifest], size: int, extra_files: Sequence[Path] = ()) -> None:
        self.bytes = size + sum(path.stat().st_size for path in extra_files if path.is_file())
        self._format = fmt
        self._extra_files = extra_files
        self._manifests = list({id(manifest): manifest for manifest in manifests}.values())

    def __len__(self) -> int:
        return sum(manifest.num_files for manifest in self._manifests) + len(self._extra_files)

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """Every ``step``-th file from ``first`` on, with its companions; at most about ``most`` files.

        No file is looked at.
        """
        for number in thinned(range(first, len(self), step), most):
            yield from map(str, self._files(number))

    def _files(self, number: int) -> list[Path]:
        for manifest in self._manifests:
            if number < manifest.num_files:
                return self._format.files(manifest.path(number))
            number -= manifest.num_files
        return [self._extra_files[number]]


class StagedFiles(DataFiles):
    """Staged copies on a node, of which each rank prepares its share.

    Args:
        fmt: see :class:`DataFiles`.
        manifests: of the copies.
        size: bytes of all copies, the mean over nodes.
        share: number of this rank among those that share the copies, and their number.
    """

    def __init__(self, fmt: Format, manifests: Iterable[Manifest], size: int, share: tuple[int, int]) -> None:
        super().__init__(fmt, manifests, size)
        self._share = share

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """The rank's share of its node's copies; ignores ``first`` and ``step``, since each node has its own copies.

        Files that no rank of the node reads have no copy and are left out.
        """
        return filter(os.path.isfile, super().share(*self._share, most))
