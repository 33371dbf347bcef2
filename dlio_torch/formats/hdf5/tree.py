"""Members of the groups of an open HDF5 file: each object once, links named and not followed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py

from dlio_torch.formats.hdf5.file import DAMAGE

MOST_MEMBERS = 20_000
"""Maximum number of members that are visited, so that a hostile file ends."""


@dataclass(frozen=True)
class GroupMember:
    """Member of a group.

    Attributes:
        path: names of the groups and of the member, joined by slashes.
        item: the group, array or named type; ``None``: a link to another name or file, or an object that cannot be
            opened.
        link: text of a link, such as ``soft link to /a``; empty for an object.
        problem: why the object cannot be opened; empty: it can.
    """

    path: str
    item: h5py.Group | h5py.Dataset | h5py.Datatype | None
    link: str = ""
    problem: str = ""


def members(file: h5py.File) -> Iterator[GroupMember]:
    """Yields the members of all groups in the order of the file, groups before their members.

    An object with several names comes once.  Damaged groups raise what h5py raises.
    """
    seen = {_address(file)}
    open_groups: list[tuple[str, h5py.Group, Iterator[str]]] = [("", file["/"], iter(file["/"]))]
    while open_groups:
        prefix, group, names = open_groups[-1]
        name = next(names, None)
        if name is None:
            open_groups.pop()
            continue
        member = _member(group, name, f"{prefix}{name}")
        if member.item is not None:
            address = _address(member.item)
            if address in seen:
                continue
            seen.add(address)
        yield member
        if isinstance(member.item, h5py.Group):
            open_groups.append((f"{member.path}/", member.item, iter(member.item)))


def _member(group: h5py.Group, name: str, path: str) -> GroupMember:
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.SoftLink):
        return GroupMember(path, None, f"soft link to {link.path}")
    if isinstance(link, h5py.ExternalLink):
        return GroupMember(path, None, f"link to another file: {link.path} of {link.filename}")
    if not isinstance(link, h5py.HardLink):
        return GroupMember(path, None, "user-defined link")
    try:
        return GroupMember(path, group[name])
    except DAMAGE as error:
        return GroupMember(path, None, problem=str(error))


def _address(item: Any) -> tuple[int, int]:
    """Key that is equal for two names of the same object."""
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr
