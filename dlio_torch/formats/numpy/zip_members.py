"""Members of NumPy's zip archives: which fields they hold, found, and where their bytes begin."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec

MEMBER = ".npy"
"""Suffix of the member of an array, after the array's name."""

_DEFLATE_LIMIT = 1100  # deflate gains a factor of 1032 at most: a larger size is a lie
_LOCAL = struct.Struct("<4s22xHH")  # signature, and the lengths of name and extra field (APPNOTE 4.3.7)
_ENCRYPTED = 1


@dataclass(frozen=True)
class Member:
    """A member of an archive.

    Attributes:
        name: without the suffix.
        fields: numbers of the fields in it.
        pickled: it is a pickled dictionary of them; else one array.
    """

    name: str
    fields: tuple[int, ...]
    pickled: bool = False


def members_of(specs: Sequence[ArraySpec], pickled: Sequence[str]) -> list[Member]:
    """The members that hold these fields, in their order; a dictionary stands where its first field does.

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
                f"dataset.npz.pickled names {name!r}, and no field lies in it",
                hint=f"name its arrays {name}/KEY in dataset.fields",
            )
    return list(members.values())


def find_member(archive: zipfile.ZipFile, name: str, size: int, path: Path) -> zipfile.ZipInfo:
    """The member of an array; raises where it is missing, or larger than a file of ``size`` bytes can hold."""
    try:
        info = archive.getinfo(name + MEMBER)
    except KeyError:
        there = ", ".join(sorted(member.removesuffix(MEMBER) for member in archive.namelist())[:8])
        raise DataError(f"{path} holds no array {name!r}, only {there}", hint="correct dataset.fields") from None
    if info.compress_size > size or info.file_size > _DEFLATE_LIMIT * info.compress_size:
        raise DataError(
            f"{path}: {name} claims {info.file_size} bytes, {info.compress_size} of them stored; the file has {size}",
            hint="the file is damaged",
        )
    return info


def member_start(file: IO[bytes], info: zipfile.ZipInfo, path: Path) -> int:
    """First byte of the content of a member; leaves ``file`` there.

    Raises:
        DataError: it is encrypted, or is not where the archive says.
    """
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{path}: {info.filename} is encrypted", hint="store it so that it can be read")
    file.seek(info.header_offset)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\3\4"):
        raise DataError(f"{path}: {info.filename} is not where the archive says", hint="the file is damaged")
    _, name, extra = _LOCAL.unpack(header)
    return file.seek(info.header_offset + _LOCAL.size + name + extra)
