"""Location of a sample's byte in its file, as far as the format knows it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Chunks, Extents, FileLayout
from dlio_torch.formats.core.layout_parts import PartedLayout


def locate_byte(fmt: Format, path: Path, row: int, array: str, byte: int) -> str | None:
    """Describes where a byte of a sample lies in its file; reads the layout of the file again.

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
    if not fmt.has_layout:
        return None
    try:
        layout = fmt.layout(path)
    except (DlioError, OSError):
        return None
    try:
        return _of(layout, path, row, array, byte)
    except (DlioError, OSError, LookupError, ValueError):  # the file's own tables may be what is damaged
        return None
    finally:
        for descriptor in layout.descriptors.values():
            os.close(descriptor)


def _of(layout: FileLayout, path: Path, row: int, array: str, byte: int) -> str | None:
    rows = np.array([row], np.int64)
    if layout.records is not None:
        record = layout.records.plan(rows, np.zeros_like(layout.records.sizes(rows)))
        return f"in the record of {record.spans[0]} bytes at byte {record.offsets[0]} of {layout.records.path.name}"
    stored = layout.arrays[array]
    if isinstance(stored, PartedLayout):
        stored, first = stored.part(int(stored.part_of(rows)[0]))
        rows = rows - first
    name = _name(stored.path, path)
    plan = stored.plan(rows, np.zeros(1, np.int64))
    if isinstance(plan, Extents):
        return _of_extents(name, plan, byte)
    if isinstance(plan, Chunks):
        return _of_chunks(name, plan, byte)
    return None  # it was read as a whole and decoded


def _name(file: Path, path: Path) -> str:
    """Name of a file; of one deep inside a data set that is a folder, its path from that folder on."""
    deep = path in file.parents and file.parent != path
    return str(file.relative_to(path.parent)) if deep else file.name


def _of_extents(name: str, plan: Extents, byte: int) -> str:
    index = int(np.flatnonzero((plan.to <= byte) & (byte < plan.to + plan.lengths))[0])
    inside = byte - int(plan.to[index])
    size = 1 if plan.turned is None else int(plan.turned[index])
    inside += size - 1 - 2 * (inside % size)  # stored in the other byte order
    return f"byte {int(plan.offsets[index]) + inside} of {name}"


def _of_chunks(name: str, plan: Chunks, byte: int) -> str | None:
    index = int(np.flatnonzero((plan.to <= byte) & (byte < plan.to + plan.lengths))[0])
    chunk = int(plan.chunk[index])
    offset, size = int(plan.offsets[chunk]), int(plan.sizes[chunk])
    if not size:
        return None  # never written
    if plan.filters:
        return f"in the chunk of {size} bytes at byte {offset} of {name}"
    return f"byte {offset + int(plan.source[index]) + byte - int(plan.to[index])} of {name}"
