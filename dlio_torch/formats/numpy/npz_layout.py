"""Layout of NumPy zip archives.

Members that are stored as they are, in a file that is not small, are read where their samples lie.  Those of a small
file, deflated ones, and those whose samples lie along the last axis are read whole when the file is opened, and
stay in memory as long as it would stay open: as the faithful path keeps them.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.buffered_file import Header, read_header, refusing
from dlio_torch.formats.core.codecs import inflated
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Ints, by_lengths
from dlio_torch.formats.core.layout_in_memory import held, held_rows
from dlio_torch.formats.core.layout_whole_file import Begun, begin, opened
from dlio_torch.formats.core.stacking import LENGTHS_SUFFIX, Stacking, agreed, ends_of
from dlio_torch.formats.numpy.npy_layout import array_layout
from dlio_torch.formats.numpy.pickled import read_dictionary
from dlio_torch.formats.numpy.zip_members import Member, find_member, member_start


def archive_layout(
    path: Path,
    specs: Sequence[ArraySpec],
    members: Sequence[Member],
    stacking: Stacking,
    expected: float,
    *,
    keep_open: bool = True,
) -> FileLayout:
    """The layout of an archive.

    Args:
        path: the file.
        specs: arrays of a sample.
        members: which of them lie in which member.
        stacking: how samples lie in an array.
        expected: bytes of a file, in the mean of the data set; one of several samples is larger.
        keep_open: hand over the open file.

    Raises:
        DataError: the file is missing or damaged, or holds something else.
    """
    with refusing(path):
        begun = begin(path, math.inf if stacking.stacked else expected, head=0)
        try:
            with begun.file() as file, zipfile.ZipFile(file) as archive:
                arrays, samples = _ArchiveLayout(begun, file, archive, stacking).layouts(specs, members)
            if all(layout.in_memory for layout in arrays.values()):
                begun.close()
        except BaseException:
            begun.close()
            raise
    whole = begun.descriptor is None
    if not keep_open:
        begun.close()
    return FileLayout(samples, arrays, None, opened([begun]), whole and not stacking.stacked, whole * begun.size)


class _ArchiveLayout:
    """Open archive whose layout is computed.

    Args:
        begun: the file.
        file: the same, to read from.
        archive: the same, its members.
        stacking: how samples lie in an array.
    """

    def __init__(self, begun: Begun, file: IO[bytes], archive: zipfile.ZipFile, stacking: Stacking) -> None:
        self._begun, self._file, self._archive = begun, file, archive
        self._stacking = stacking
        self._path = begun.path

    def layouts(self, specs: Sequence[ArraySpec], members: Sequence[Member]) -> tuple[dict[str, ArrayLayout], int]:
        """Returns the layouts of all arrays and the number of samples."""
        arrays: dict[str, ArrayLayout] = {}
        counts: dict[str, int] = {}
        for member in members:
            info = find_member(self._archive, member.name, self._path)
            if member.pickled:
                inside = [specs[number] for number in member.fields]
                arrays.update(self._pickled(info, inside, member.name))
                counts.update(dict.fromkeys((spec.name for spec in inside), 1))
                continue
            spec = specs[member.fields[0]]
            whole = self._begun.descriptor is None or info.compress_type != zipfile.ZIP_STORED or self._stacking.last
            layout_of = self._whole if whole else self._in_archive
            arrays[spec.name], count = layout_of(spec, info)
            counts[spec.name] = count if self._stacking.stacked else 1
        return arrays, agreed(counts, self._path)

    def _pickled(self, info: zipfile.ZipInfo, specs: Sequence[ArraySpec], name: str) -> dict[str, ArrayLayout]:
        content = self._content(info)
        file = io.BufferedReader(io.BytesIO(content))
        layouts: dict[str, ArrayLayout] = {}
        arrays = read_dictionary(file, len(content), specs, self._path, name)
        for spec, array in zip(specs, arrays, strict=True):
            if spec.variable:
                layouts[spec.name] = held_rows(self._path, array, np.array([0, len(array)]))
            else:
                layouts[spec.name] = held(self._path, np.ascontiguousarray(array)[np.newaxis])
        return layouts

    def _whole(self, spec: ArraySpec, info: zipfile.ZipInfo) -> tuple[ArrayLayout, int]:
        header, array = self._read(info, spec.name)
        count = self._stacking.count(spec, header.dtype, header.shape, self._path)
        if spec.variable:
            if not self._stacking.stacked:
                return held_rows(self._path, array.reshape(count, *spec.shape), np.array([0, count])), 1
            ends = self._ends(spec, count)
            return held_rows(self._path, array, ends), len(ends) - 1
        if not self._stacking.stacked:
            return held(self._path, np.ascontiguousarray(array)[np.newaxis]), count
        return held(self._path, np.moveaxis(array, -1, 0) if self._stacking.last else array), count

    def _in_archive(self, spec: ArraySpec, info: zipfile.ZipInfo) -> tuple[ArrayLayout, int]:
        start = member_start(self._file, info, self._path)
        header = read_header(self._file, info.file_size, self._path, spec.name)
        count = self._stacking.count(spec, header.dtype, header.shape, self._path)
        start += header.bytes
        if not (spec.variable and self._stacking.stacked):
            return array_layout(header, self._begun, start, spec, stacked=self._stacking.stacked), count
        rows = np.diff(self._ends(spec, count))
        row = math.prod(spec.shape) * spec.dtype.itemsize
        return by_lengths(self._path, start, rows, row, self._begun.size), len(rows)

    def _ends(self, spec: ArraySpec, rows: int) -> Ints:
        name = spec.name + LENGTHS_SUFFIX
        _, lengths = self._read(find_member(self._archive, name, self._path), name)
        return ends_of(lengths, rows, spec.name, self._path)

    def _read(self, info: zipfile.ZipInfo, name: str) -> tuple[Header, npt.NDArray[Any]]:
        """Reads a whole member: its header and its array."""
        content = self._content(info)
        header = read_header(io.BytesIO(content), len(content), self._path, name)
        flat = np.frombuffer(content, header.dtype, math.prod(header.shape), header.bytes)
        return header, flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    def _content(self, info: zipfile.ZipInfo) -> bytes:
        """Reads the bytes of a member and verifies its checksum."""
        start = member_start(self._file, info, self._path)
        if self._begun.descriptor is None:
            stored = self._begun.data[start : start + info.compress_size]
        else:
            stored = self._file.read(info.compress_size)
        content = stored
        if info.compress_type == zipfile.ZIP_DEFLATED:
            content = inflated(stored, info.file_size, f"{self._path}: {info.filename}", bare=True)
        elif info.compress_type != zipfile.ZIP_STORED:
            raise DataError(
                f"{self._path}: member {info.filename} is compressed with zip method {info.compress_type}, which "
                "loader.engine=decoupled cannot read",
                hint="set loader.engine=dataloader, or compress the archive with deflate",
            )
        if zlib.crc32(content) != info.CRC:
            raise DataError(
                f"{self._path}: member {info.filename} does not match its stored checksum",
                hint="the file is damaged; generate or fetch the file again",
            )
        return content
