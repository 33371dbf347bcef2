"""The folder of metadata and data (BP4, BP5) that ADIOS2 writes, and a check that it is complete.

ADIOS2 itself waits for what a cut file does not hold, without end, as for a writer that is still at work.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import BinaryIO

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.syserrors import unreadable

INDEX, METADATA, DATA = "md.idx", "md.0", "data.0"
_HEADER = 64  # bytes; byte 37 is the version, byte 38 tells that a writer is at work, or of BP5 its minor version
_ENDIAN = 36  # byte of the header: 0 is little-endian
_ROW = 64  # bytes of a step in BP4's index
_TIME = 48  # place of the time of writing in such a row
_NUMBERS = 3  # of a record of BP5's index, before those of each writer
_DATA_SIZE = 40  # place of the size of a step's data in BP5's metadata of a writer
_HINT = "generate or fetch the folder again"


def check_complete(folder: Path) -> None:
    """Raise unless the folder's files hold all the bytes that its index lists.

    Raises:
        DataError: missing, no folder of BP4 or BP5, or incomplete.
    """
    if not folder.exists():
        raise open_error(folder, FileNotFoundError())
    if not folder.is_dir():
        raise DataError(
            f"{folder} is a file; dataset.format=adios2 reads BP4 and BP5 folders", hint="correct dataset.path"
        )
    try:
        index = (folder / INDEX).read_bytes()
        if len(index) < _HEADER or not index.startswith(b"ADIOS-BP") or index[37] not in (4, 5):
            raise DataError(f"{folder}/{INDEX} is not an index of ADIOS2's BP4 or BP5", hint=_HINT)
        if index[_ENDIAN] != (sys.byteorder == "big"):
            raise DataError(
                f"{folder} was written on a machine of the other byte order, which ADIOS2 cannot read here", hint=_HINT
            )
        with (folder / METADATA).open("rb") as metadata:
            ends = _ends_bp4(folder, index, metadata) if index[37] == 4 else _ends_bp5(index, metadata)
        for name, end in ends.items():
            size = (folder / name).stat().st_size
            if size < end:
                raise DataError(f"{folder}/{name} is incomplete: it has {size} of {end} bytes", hint=_HINT)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise unreadable(error.filename or folder, error) from error
        raise DataError(f"{folder} is incomplete: {error.strerror}: {error.filename}", hint=_HINT) from error
    except (struct.error, LookupError, OverflowError, ValueError) as error:
        raise DataError(f"{folder}/{INDEX} is damaged or truncated", hint=_HINT) from error


def _ends_bp4(folder: Path, index: bytes, metadata: BinaryIO) -> dict[str, int]:
    """Least bytes of each file: the index points to the metadata of each step, which point to the step's data."""
    if len(index) % _ROW or len(index) == _HEADER:
        raise ValueError("part of a row")
    have = _size(metadata)
    for number, row in enumerate(range(_HEADER, len(index), _ROW), 1):
        # Its number, who wrote the index, where its lists of process groups, variables and attributes lie.
        step, writer, groups, variables, attributes, end, _, _ = struct.unpack_from("<8Q", index, row)
        if step != number or writer or not groups <= variables <= attributes <= end or variables < 8:
            raise ValueError("steps that do not follow each other")
        if have < end:
            return {METADATA: end}
    begin = _number(metadata, variables - 8)  # the last entry of the list of process groups
    with (folder / DATA).open("rb") as data:
        if _size(data) < begin + 12:
            return {DATA: begin + 12}
        return {METADATA: end, DATA: begin + 4 + _number(data, begin + 4)}


def _ends_bp5(index: bytes, metadata: BinaryIO) -> dict[str, int]:
    """Least bytes of each file; the data file is included only if one writer wrote it without extra flushes."""
    place, writers, have = _HEADER, 0, _size(metadata)
    step: tuple[int, ...] = ()
    while place < len(index):
        kind, size = struct.unpack_from("<BQ", index, place)
        place += 9
        if place + size > len(index):
            raise ValueError("the last record is incomplete")
        numbers = struct.unpack_from(f"<{size // 8}Q", index, place)
        if kind == ord("w"):
            writers = numbers[0]
            if size != 8 * (_NUMBERS + writers):
                raise ValueError("the length of a record does not fit its number of writers")
        elif kind == ord("s"):
            # A place for each writer, and for each of its flushes one with a length.
            if len(numbers) < _NUMBERS or size != 8 * (_NUMBERS + writers * (1 + 2 * numbers[2])):
                raise ValueError("the length of a step's record does not fit its number of writers")
            end = sum(step[:2])
            if numbers[0] != end or numbers[1] < 8 or (step and numbers[_NUMBERS:] < step[_NUMBERS:]):
                raise ValueError("steps that do not follow each other")
            if numbers[1] > have - end:
                return {METADATA: end + numbers[1]}
            step = numbers
        else:
            raise ValueError(f"a record of kind {kind}")
        place += size
    if not step:
        raise ValueError("no step")
    begin, size, flushes, data = step[:4]
    ends = {METADATA: begin + size}
    if writers == 1 and not flushes and index[38] == 2 and _size(metadata) >= begin + size:
        # In front of a writer's metadata: their size, and those of its own and of its attributes.
        ends[DATA] = data + _number(metadata, begin + 3 * 8 + _DATA_SIZE)
    return ends


def _size(file: BinaryIO) -> int:
    return file.seek(0, 2)


def _number(file: BinaryIO, place: int) -> int:
    file.seek(place)
    return int(struct.unpack("<Q", file.read(8))[0])


def make_repeatable(folder: Path) -> None:
    """Remove timestamps from a folder that was just written, so that equal content gives equal bytes."""
    (folder / "profiling.json").unlink(missing_ok=True)
    path = folder / INDEX
    index = bytearray(path.read_bytes())
    if index[37] == 4:
        for row in range(_HEADER, len(index), _ROW):
            index[row + _TIME : row + _TIME + 8] = bytes(8)
        path.write_bytes(index)
