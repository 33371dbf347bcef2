"""Parser of classic netCDF headers: file extent, type and shape of each variable.

The netCDF library gives zeros for what a cut file does not hold, and no error.  The format is that of the
NetCDF Classic Format Specification: CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit data).
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dlio_torch.errors import DataError

_DIMENSION, _VARIABLE, _ATTRIBUTE = 10, 11, 12
_TYPES = {
    1: "int8", 2: "S1", 3: "int16", 4: "int32", 5: "float32", 6: "float64", 7: "uint8", 8: "uint16", 9: "uint32",
    10: "int64", 11: "uint64",
}  # fmt: skip
"""Number of an ``nc_type`` -> NumPy's name of the type."""
_SIZES = {number: np.dtype(name).itemsize for number, name in _TYPES.items()}
_STREAMING = 0xFFFFFFFF  # numrecs of a file whose writer did not come back to its header
_MOST = 1 << 24  # entries of a list, characters of a name: more is damage


@dataclass(frozen=True)
class VariableExtent:
    """Extent of a variable in the file.

    Attributes:
        begin: first byte.
        size: bytes of it; of a variable with records, of one of them.
        step: bytes from one record to the next; 0: it has no records.
        element: bytes of an element.
        kind: NumPy's name of its type.
        shape: of the variable, records first.
    """

    begin: int
    size: int
    step: int
    element: int
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ClassicHeader:
    """Extents of the variables of a classic file.

    Attributes:
        variables: by name.
        end: byte behind the last one.
    """

    variables: Mapping[str, VariableExtent]
    end: int


def read_classic_header(path: Path) -> ClassicHeader | None:
    """Reads the extents of a classic file's variables; ``None`` if the file is not a classic netCDF file.

    Raises:
        DataError: it ends too early, or its header is damaged.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        magic = file.read(4)
        if magic[:3] != b"CDF" or magic[3] not in (1, 2, 5):
            return None
        try:
            header = _HeaderParser(file, magic[3]).parse()
        except (struct.error, LookupError, ValueError, OverflowError, MemoryError) as error:
            raise DataError(f"{path} has a damaged header", hint="generate or fetch the file again") from error
        size = os.fstat(file.fileno()).st_size
    if size < header.end:
        raise DataError(
            f"{path} is incomplete: it has {size} bytes, but its header describes {header.end} bytes",
            hint="generate or fetch the file again",
        )
    return header


class _HeaderParser:
    """Parser of a header, starting after the magic number."""

    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._count = ">Q" if version == 5 else ">I"
        self._place = ">I" if version == 1 else ">Q"

    def parse(self) -> ClassicHeader:
        """Parses all variables and the end of the data."""
        records = self._number(self._count)
        lengths = []
        for _ in range(self._list(_DIMENSION)):
            self._name()
            lengths.append(self._number(self._count))
        self._attributes()
        variables: dict[str, VariableExtent] = {}
        recorded = []  # names of those that have records
        for _ in range(self._list(_VARIABLE)):
            name = self._name()
            shape = [lengths[self._number(self._count)] for _ in range(self._short(self._number(self._count)))]
            self._attributes()
            kind = self._number(">I")
            element = _SIZES[kind]
            self._number(self._count)  # vsize says the same, rounded up, and is wrong for large variables
            begin = self._number(self._place)
            is_record = bool(shape) and shape[0] == 0
            if name in variables:
                raise ValueError(f"variable {name} is defined twice")
            size = element * math.prod(shape[1:] if is_record else shape)
            if is_record:
                recorded.append(name)
                shape[0] = records if records != _STREAMING else 0
            variables[name] = VariableExtent(begin, size, 0, element, _TYPES[kind], tuple(shape))
        ends = [variable.begin + variable.size for name, variable in variables.items() if name not in recorded]
        # Of one variable alone, records are not padded.
        step = sum(-(-variables[name].size // 4) * 4 for name in recorded)
        if len(recorded) == 1:
            step = variables[recorded[0]].size
        for name in recorded:
            variables[name] = replace(variables[name], step=step)
            if records and records != _STREAMING:
                ends.append(variables[name].begin + (records - 1) * step + variables[name].size)
        return ClassicHeader(variables, max(ends, default=0))

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._file.read(struct.calcsize(form)))[0])

    def _short(self, count: int) -> int:
        if count > _MOST:
            raise ValueError(f"{count} entries")
        return count

    def _list(self, kind: int) -> int:
        """Reads the number of entries of a list, which is 0 for an absent list."""
        tag, count = self._number(">I"), self._number(self._count)
        if tag not in (0, kind) or (tag == 0 and count):
            raise ValueError(f"tag {tag}")
        return self._short(count)

    def _name(self) -> str:
        size = self._short(self._number(self._count))
        name = self._file.read(-(-size // 4) * 4)[:size]
        if len(name) < size:
            raise ValueError("the header ends within a name")
        return name.decode()

    def _skip(self, size: int) -> None:
        self._file.seek(-(-size // 4) * 4, os.SEEK_CUR)

    def _attributes(self) -> None:
        for _ in range(self._list(_ATTRIBUTE)):
            self._name()
            size = _SIZES[self._number(">I")]
            self._skip(size * self._short(self._number(self._count)))
