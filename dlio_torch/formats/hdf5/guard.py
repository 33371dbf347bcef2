"""Checks of arrays in untrusted HDF5 files, from their headers alone, when they are opened.

A file may say that an array lies elsewhere (external links, raw data in other files, virtual arrays), that it has more
elements than any memory, or that it was written by a filter that is code of its own.  Only what lies in this file is
read, and no more memory is taken than what the file holds can become.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import h5py

from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.file_errors import open_error, os_errors
from dlio_torch.formats.hdf5.facts import Hdf5Facts

SLACK_BYTES = 64 << 20  # of elements that were never written and have a fill value
_GAIN = 1100  # deflate gains a factor of 1032 at most
_GAIN_OTHERS = 1 << 16  # of filters that are made for runs of equal bytes
_PLAIN = frozenset((1, 2, 3))  # deflate, shuffle, checksum: HDF5's numbers
ANY_FILTER = frozenset((-1,))
"""Filters assumed for an array whose filters are unknown."""
_MOST_LINKS = 16  # soft links on the way to an array, as many as HDF5 follows
SIGNATURE = Hdf5Facts.magics[0]
"""First bytes of an HDF5 file without a user block."""
_HINT = "store the array in the file itself; dlio_torch follows no links to other files"


def check_link(group: h5py.Group, name: str, path: Path, followed: int = 0) -> None:
    """Raise if a member of a group lies in another file; soft links within this file are followed.

    Args:
        group: open.
        name: of the member; it is there.
        path: of the file.
        followed: soft links so far.

    Raises:
        DataError: it does, or its soft links do not end.
    """
    kind = group.id.links.get_info(name.encode()).type
    if kind == h5py.h5l.TYPE_HARD:
        return
    link = f"{path}: {(group.name or '').rstrip('/')}/{name}"
    if kind != h5py.h5l.TYPE_SOFT:
        description = "a link to another file" if kind == h5py.h5l.TYPE_EXTERNAL else "a user-defined link"
        raise DataError(f"{link} is {description}", hint=_HINT)
    if followed == _MOST_LINKS:
        raise DataError(f"{link}: the soft links form a loop, or their chain is too long", hint=_HINT)
    target = group.id.links.get_val(name.encode()).decode("utf-8", "surrogateescape")
    _check_way(group.file if target.startswith("/") else group, target, path, followed + 1)


def _check_way(group: h5py.Group, name: str, path: Path, followed: int = 0) -> h5py.Dataset | None:
    """Raise if any part of the path to an object lies in another file; returns the object if it is an array."""
    member: Any = group
    for part in name.split("/"):
        if part in ("", "."):
            continue
        if not isinstance(member, h5py.Group) or part not in member:
            return None  # the caller reports that it is missing
        check_link(member, part, path, followed)
        member = member[part]
    return member if isinstance(member, h5py.Dataset) else None


def has_signature(path: Path) -> bool:
    """Whether a file is an HDF5 file without a user block, by its first bytes.

    Raises:
        DataError: it cannot be read.
    """
    with os_errors(path), path.open("rb") as stored:
        return stored.read(len(SIGNATURE)) == SIGNATURE


def check_file(path: Path, names: Sequence[str]) -> None:
    """Raise if an array lies in another file or claims too much memory; for files that another library reads.

    A file that is not HDF5, or lacks an array, is left to that library.

    Args:
        path: the file.
        names: of the arrays.

    Raises:
        DataError: one of them does.
    """
    if not has_signature(path):
        return
    try:
        with h5py.File(path, "r") as file:
            for name in names:
                array = _check_way(file, name, path)
                if array is not None:
                    check_array(array, path)
    except DlioError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise open_error(path, error) from error


def check_array(array: h5py.Dataset, path: Path) -> None:
    """Raise if reading an array would access another file, or need more memory than a file of this size can hold.

    Raises:
        DataError: it would.
    """
    properties = array.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.VIRTUAL:
        raise DataError(f"{path}: {array.name} is a virtual dataset of other files", hint=_HINT)
    if properties.get_external_count():
        name = properties.get_external(0)[0].decode("utf-8", "backslashreplace")
        raise DataError(f"{path}: the elements of {array.name} lie in the external file {name!r}", hint=_HINT)
    shape = array.shape or ()
    filters = {properties.get_filter(number)[0] for number in range(properties.get_nfilters())}
    chunk = array.chunks if layout == h5py.h5d.CHUNKED else None
    check_size(array.name, shape, chunk, array.dtype.itemsize, array.file.id.get_filesize(), filters, path)


def check_size(
    name: str,
    shape: tuple[int, ...],
    chunk: tuple[int, ...] | None,
    itemsize: int,
    file_bytes: int,
    filters: Set[int],
    path: Path,
) -> None:
    """Raise if an array, or one of its chunks, is larger than a file of this size can hold.

    Args:
        name: of the array.
        shape: of the array.
        chunk: of a chunk; ``None``: it is not in chunks.
        itemsize: bytes of an element.
        file_bytes: of the file.
        filters: their numbers in HDF5.
        path: of the file.

    Raises:
        DataError: it is.
    """
    most = SLACK_BYTES + file_bytes * (_GAIN if filters <= _PLAIN else _GAIN_OTHERS)
    for part, lengths in (("", shape), ("a chunk of ", chunk or ())):
        size = math.prod(lengths) * itemsize
        if size > most:
            raise DataError(
                f"{path}: {part}{name} has shape {list(lengths)} and {size} bytes, more than a file of {file_bytes} "
                "bytes can hold",
                hint="the file is damaged, or its array was never written; generate or fetch the file again",
            )
