"""Layout of arrays that ``numpy.save`` wrote."""

from __future__ import annotations

import math

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.buffered_file import Header, read_header
from dlio_torch.formats.core.layout import ArrayLayout, StridedLayout, by_lengths
from dlio_torch.formats.core.layout_in_memory import held
from dlio_torch.formats.core.layout_whole_file import Begun

_MOST_KNOWN = 256


def header_of(begun: Begun, name: str, known: dict[bytes, Header]) -> Header:
    """Reads the header of a single-array file.

    Args:
        begun: the file.
        name: of the array, for errors.
        known: headers that were parsed before, which gets this one: those of a data set are mostly the same.

    Raises:
        DataError: pickled objects, or more or fewer bytes than the header says.
        ValueError: no header of NumPy's.
    """
    data = begun.data
    head = data[: 10 + int.from_bytes(data[8:10], "little")]
    cached = known.get(head)
    if cached is not None and cached.bytes + math.prod(cached.shape) * cached.dtype.itemsize == begun.size:
        return cached
    header = read_header(begun.head(), begun.size, begun.path, name)
    if len(head) == header.bytes and len(known) < _MOST_KNOWN:
        known[head] = header
    return header


def array_layout(header: Header, begun: Begun, start: int, spec: ArraySpec, *, stacked: bool) -> ArrayLayout:
    """The layout of a stored array.

    Args:
        header: of the array; of the type and shape that ``spec`` asks for.
        begun: the file.
        start: the array's first element in it.
        spec: the array of a sample.
        stacked: samples along the first axis; else the array is the sample.

    Raises:
        DataError: the elements are in another order than C's.
    """
    path = begun.path
    if header.fortran_order and len(header.shape) > 1:
        raise DataError(
            f"{path}: array {spec.name} is stored in Fortran (column-major) order, which loader.engine=decoupled "
            "cannot read",
            hint="set loader.engine=dataloader, or store the array in C order",
        )
    row = math.prod(spec.shape) * spec.dtype.itemsize
    elements = math.prod(header.shape) // math.prod(spec.shape) if spec.variable else 1
    rows = np.array([elements], np.int64)
    if begun.descriptor is None:
        content = np.frombuffer(begun.data, np.uint8, row * int(rows[0]), start)
        return held(path, content[np.newaxis])
    if spec.variable and not stacked:
        return by_lengths(path, start, rows, row, start + int(rows[0]) * row)
    return StridedLayout(path, start, row)
