"""Extents of the blocks of variables in a folder of BP4 or BP5, from the folder's own index.

BP4's index lists the characteristics of each block (ADIOS2's utility bp4dbg reads the same).  BP5's metadata are
records of FFS, a format that describes itself: ``mmd.0`` has the names, types and places of all fields
(``BP5Base.h`` and ``fm_internal.h`` of ADIOS2 say what they mean).  What is not understood is refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.adios2.block import Block, Unread
from dlio_torch.formats.adios2.bp4_index import read_bp4
from dlio_torch.formats.adios2.bp5_index import read_bp5
from dlio_torch.formats.adios2.folder import INDEX, METADATA
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.syserrors import unreadable

OTHER_WAY = "set loader.engine=dataloader, which reads through the ADIOS2 library"
_HINT = "generate or fetch the folder again"
_VERSION, _ENDIAN = 37, 36  # bytes of the header


def read_blocks(folder: Path, names: Sequence[str]) -> dict[str, list[list[Block]]]:
    """The blocks of each variable, step by step, without the steps that lack the variable.

    Args:
        folder: complete, as ``bp_folder.check_complete`` says.
        names: of the variables.

    Raises:
        DataError: the index is damaged, or says something that only the library understands.
    """
    try:
        return _read(folder, names)
    except Unread as error:
        raise DataError(f"{folder}: {error}", hint=OTHER_WAY) from error


def check_index(folder: Path, names: Sequence[str]) -> None:
    """Raise if the index is damaged; ADIOS2 does not check its index and would crash or hang.

    Args:
        folder: complete, as ``bp_folder.check_complete`` says.
        names: of the variables that are to be read.

    Raises:
        DataError: it is damaged.
    """
    with suppress(Unread):
        blocks_by_name = _read(folder, names)
        sizes: dict[int, int] = {}
        for name, block in (
            (name, block) for name, steps in blocks_by_name.items() for blocks in steps for block in blocks
        ):
            with os_errors(path := folder / f"data.{block.file}"):
                size = sizes.setdefault(block.file, -1)
                sizes[block.file] = size = path.stat().st_size if size < 0 else size
            parts = zip(block.start, block.count, block.shape, strict=True)
            length = math.prod(block.count) * np.dtype(block.kind).itemsize
            if any(start + count > whole for start, count, whole in parts) or block.offset + length > size:
                raise DataError(
                    f"{folder}: the index is damaged: a block of variable {name} lies outside of its array or "
                    f"outside of {path.name}",
                    hint=_HINT,
                )


def _read(folder: Path, names: Sequence[str]) -> dict[str, list[list[Block]]]:
    """Same as :func:`read_blocks`, but raises Unread for an index that only the ADIOS2 library can read."""
    try:
        index = (folder / INDEX).read_bytes()
        metadata = (folder / METADATA).read_bytes()
        if index[_ENDIAN]:
            raise Unread("the folder was written on a machine of the other byte order")
        read = read_bp4 if index[_VERSION] == 4 else read_bp5
        return read(folder, index, metadata, names)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise unreadable(error.filename or folder, error) from error
        raise DataError(f"{folder} is incomplete: {error.strerror}: {error.filename}", hint=_HINT) from error
    except (struct.error, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{folder}: the index is damaged: {error}", hint=_HINT) from error
