"""Samples of a shard: consecutive members with the same key, grouped by WebDataset itself."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.webdataset.member_codec import webdataset
from dlio_torch.formats.webdataset.members import SampleMember
from dlio_torch.formats.webdataset.tar_headers import streamed_members, tar_errors, tar_members

KEY = "__key__"
"""Entry of a sample with its key, the names of its members up to their first dot."""

_META = re.compile(r"__[^/]*__($|/)")  # tar_file_iterator's skip_meta


def is_read(member: tarfile.TarInfo) -> bool:
    """Whether WebDataset reads a member: a regular file that is not its own metadata."""
    return member.isreg() and not _META.match(member.name)


def grouped(members: Iterable[tarfile.TarInfo], path: Path) -> Iterator[dict[str, Any]]:
    """Groups headers to samples: extension -> header, and the key as :data:`KEY`.

    Raises:
        DataError: a sample has two members of one extension.
    """
    group_by_keys = webdataset().tariterators.group_by_keys
    entries = ({"fname": info.name, "data": info, "__url__": str(path)} for info in members if is_read(info))
    with tar_errors(path):
        yield from group_by_keys(entries)


class Selection:
    """Selection of the members that are read from a sample.

    Args:
        members: those of ``dataset.fields``.
        skip: samples without one of them are left out; else they are an error.
    """

    def __init__(self, members: Sequence[SampleMember], *, skip: bool) -> None:
        self._members = members
        self._skip = skip

    def keys(self, sample: dict[str, Any], path: Path) -> list[str] | None:
        """Extension of each member in a sample; ``None``: the sample is left out.

        Raises:
            DataError: a member is missing.
        """
        keys = [next((key for key in member.keys if key in sample), None) for member in self._members]
        present = [key for key in keys if key is not None]
        if len(present) == len(keys):
            return present
        if self._skip:
            return None
        missing = self._members[keys.index(None)].spec.name
        there = ", ".join(key for key in sample if not key.startswith("__")) or "none"
        raise DataError(
            f"{path}: sample {sample[KEY]} has no member {missing}, but {there}",
            hint="set dataset.webdataset.missing=skip to leave such samples out, or correct dataset.fields",
        )


@dataclass(frozen=True)
class ShardIndex:
    """Extents of the members that are read from an uncompressed shard.

    Attributes:
        names: key of each sample.
        keys: extension of each member in each sample.
        offsets: first byte of each member; int64 of ``(samples, members)``.
        sizes: its bytes; the same shape.
    """

    names: list[str]
    keys: list[list[str]]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)


def read_index(path: Path, selection: Selection) -> ShardIndex:
    """Indexes an uncompressed shard by its headers.

    Raises:
        DataError: it is damaged, or a member is missing.
    """
    names, extensions = [], []
    offsets: list[list[int]] = []
    sizes: list[list[int]] = []
    for sample in grouped(tar_members(path), path):
        keys = selection.keys(sample, path)
        if keys is None:
            continue
        chosen: list[tarfile.TarInfo] = [sample[key] for key in keys]
        for info in chosen:
            if info.issparse():
                raise DataError(
                    f"{path}: member {info.name} is a sparse file, whose bytes are not contiguous",
                    hint="set access=stream, which reads it",
                )
        names.append(sample[KEY])
        extensions.append(keys)
        offsets.append([info.offset_data for info in chosen])
        sizes.append([info.size for info in chosen])
    shape = (len(names), -1) if names else (0, 0)
    return ShardIndex(
        names, extensions, np.array(offsets, np.int64).reshape(shape), np.array(sizes, np.int64).reshape(shape)
    )


def count_samples(path: Path, selection: Selection, *, plain: bool) -> int:
    """Number of samples of a shard, from its headers; a compressed one is unpacked for that.

    Raises:
        DataError: it is damaged, or a member is missing.
    """
    headers = tar_members(path) if plain else streamed_members(path)
    return sum(selection.keys(sample, path) is not None for sample in grouped(headers, path))
