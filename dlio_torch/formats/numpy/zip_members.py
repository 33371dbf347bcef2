"""Members of NumPy zip archives: fields in each member, lookup by name and position of the bytes."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec

MEMBER = ".npy"
"""Suffix that a member's name has after the name of its array."""

_DEFLATE_LIMIT = 1100  # deflate gains a factor of 1032 at most: a larger size is a lie
_LOCAL = struct.Struct("<4s22xHH")  # signature, and the lengths of name and extra field (APPNOTE 4.3.7)
_ENCRYPTED = 1


@dataclass(frozen=True)
class Member:
    """Member of an archive.

    Attributes:
        name: without the suffix.
        fields: numbers of the fields in it.
        pickled: it is a pickled dictionary of them; else one array.
    """

    name: str
    fields: tuple[int, ...]
    pickled: bool = False


def members_of(specs: Sequence[ArraySpec], pickled: Sequence[str]) -> list[Member]:
    """The members that hold these fields, in field order; a dictionary has the position of its first field.

    Raises:
        ConfigError: no field lies in a dictionary.
    """
    members: dict[str, Member] = {}
    for number, spec in enumerate(specs):
        inside = next((name for name in pickled if spec.name.startswith(name + "/")), None)
        name = inside or spec.name
        before = members[name].fields if name in members else ()
        members[name] = Member(name, (*before, number), inside is not None)
    for name in pickled:
        if not (name in members and members[name].pickled):
            raise ConfigError(
                f"dataset.npz.pickled names {name!r}, but no field of dataset.fields lies in that dictionary",
                hint=f"name the arrays of the dictionary as {name}/KEY in dataset.fields",
            )
    return list(members.values())


def find_member(archive: zipfile.ZipFile, name: str, path: Path) -> zipfile.ZipInfo:
    """Finds the member of an array; raises if it is missing or larger than the file can hold.

    Members lie before the archive's directory, whose place ``zipfile`` knows: no call asks for the size of the file.
    """
    size = archive.start_dir
    try:
        info = archive.getinfo(name + MEMBER)
    except KeyError:
        there = ", ".join(sorted(member.removesuffix(MEMBER) for member in archive.namelist())[:8])
        raise DataError(
            f"{path} has no array {name!r}; its arrays are: {there}", hint="correct dataset.fields"
        ) from None
    if info.compress_size > size or info.file_size > _DEFLATE_LIMIT * info.compress_size:
        raise DataError(
            f"{path}: array {name} claims {info.file_size} bytes ({info.compress_size} bytes stored), more than a "
            f"file with {size} bytes of members can hold",
            hint="the file is damaged; generate or fetch the file again",
        )
    return info


def member_start(file: IO[bytes], info: zipfile.ZipInfo, path: Path) -> int:
    """Returns the file offset of a member's content and leaves ``file`` at that position.

    Raises:
        DataError: it is encrypted, or is not where the archive says.
    """
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{path}: member {info.filename} is encrypted", hint="store the archive without encryption")
    file.seek(info.header_offset)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\3\4"):
        raise DataError(
            f"{path}: member {info.filename} does not start at the offset in the archive's directory",
            hint="the file is damaged; generate or fetch the file again",
        )
    _, name, extra = _LOCAL.unpack(header)
    return file.seek(info.header_offset + _LOCAL.size + name + extra)


def new_member(archive: zipfile.ZipFile, name: str) -> Any:
    """Opens a member as ``numpy.savez`` does, with a fixed date so that equal content gives equal bytes."""
    info = zipfile.ZipInfo(name + MEMBER)
    info.compress_type = archive.compression
    return archive.open(info, "w", force_zip64=True)
