"""Which byte of which file a byte of a sample comes from, as far as the format can tell."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import ArrayPlaces, Chunks, NativeFile, Pieces


def whereabouts(fmt: Format, path: Path, row: int, array: str, byte: int) -> str | None:
    """Where a byte of a sample lies; looks at the file again.

    Args:
        fmt: knows the files.
        path: the file.
        row: position of the sample in it.
        array: of the sample.
        byte: of the array, as it is in memory.

    Returns:
        For example ``byte 4711 of a.h5``; of what is compressed or framed the chunk or the record that it lies in;
        ``None`` where the format does not tell, or the file is too damaged for that.
    """
    if not fmt.has_places:
        return None
    try:
        native = fmt.places(path)
    except (DlioError, OSError):
        return None
    try:
        return _of(native, row, array, byte)
    except (DlioError, OSError, LookupError, ValueError):  # the file's own tables may be what is damaged
        return None
    finally:
        for descriptor in native.descriptors.values():
            os.close(descriptor)


def _of(native: NativeFile, row: int, array: str, byte: int) -> str | None:
    rows = np.array([row], np.int64)
    if native.records is not None:
        one = native.records.plan(rows, np.zeros_like(native.records.sizes(rows)))
        return f"in the record of {one.spans[0]} bytes at byte {one.offsets[0]} of {native.records.path.name}"
    places = native.arrays[array]
    plan = places.plan(rows, np.zeros(1, np.int64))
    if isinstance(plan, Pieces):
        return _of_pieces(places, plan, byte)
    if isinstance(plan, Chunks):
        return _of_chunks(places, plan, byte)
    return None  # it was read as a whole and decoded


def _of_pieces(places: ArrayPlaces, plan: Pieces, byte: int) -> str:
    at = int(np.flatnonzero((plan.to <= byte) & (byte < plan.to + plan.lengths))[0])
    inside = byte - int(plan.to[at])
    size = 1 if plan.turned is None else int(plan.turned[at])
    inside += size - 1 - 2 * (inside % size)  # stored in the other byte order
    return f"byte {int(plan.offsets[at]) + inside} of {places.path.name}"


def _of_chunks(places: ArrayPlaces, plan: Chunks, byte: int) -> str | None:
    at = int(np.flatnonzero((plan.to <= byte) & (byte < plan.to + plan.lengths))[0])
    chunk = int(plan.chunk[at])
    offset, size = int(plan.offsets[chunk]), int(plan.sizes[chunk])
    if not size:
        return None  # never written
    if plan.filters:
        return f"in the chunk of {size} bytes at byte {offset} of {places.path.name}"
    return f"byte {offset + int(plan.source[at]) + byte - int(plan.to[at])} of {places.path.name}"
