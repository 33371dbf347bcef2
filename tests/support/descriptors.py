"""What the calls of a strace log did with files: the offset of each access, through descriptors and their copies.

Follows the descriptor table of each process (copied by fork, shared by threads), copies of descriptors and
the offset that they share, and the size of each file (for appending writes).  Files must not exist before
the traced program makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from strace import OPENS, READS, TRACED, WRITES, Call

from dlio_torch.iotrace.events.call_names import normal_name

COPIES = ("sendfile", "copy_file_range")
_CLONES = ("clone", "?clone3", "?fork", "?vfork")
_DUPS = ("dup", "?dup2", "dup3", "fcntl")
FOLLOWED = (*TRACED, *_CLONES, *_DUPS, *COPIES, "mmap", "truncate", "fallocate", "sync_file_range")
"""Calls that must be traced."""

_FD = re.compile(r"(-?\d+)(?:<|$)")
_PATH = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class Access:
    """One call on a file: what an event table should say about it.

    Attributes:
        tid: thread.
        op: :func:`dlio_torch.iotrace.events.call_names.normal_name` of the call.
        file: path at the time of opening.
        offset: of the first byte, the new position of seeks; -1: none.
        bytes: that were moved, or mapped; -1: none.
    """

    tid: int
    op: str
    file: str
    offset: int = -1
    bytes: int = -1


@dataclass
class _File:
    """An open file: what copies of a descriptor share."""

    path: str
    append: bool
    offset: int = 0


@dataclass
class _State:
    tables: dict[int, dict[int, _File]] = field(default_factory=dict)  # by thread; threads share one
    sizes: dict[str, int] = field(default_factory=dict)

    def grow(self, file: _File, end: int) -> None:
        self.sizes[file.path] = max(self.sizes.get(file.path, 0), end)


def accesses(calls: Iterable[Call], folder: Path) -> Iterator[Access]:
    """Successful opens, reads, writes, seeks, syncs, maps and closes, of a folder and files below it.

    A copy within the kernel is a call of its name on the file that it reads, and a write to the other.

    Args:
        calls: of a trace of :data:`FOLLOWED`.
        folder: real path.
    """
    state = _State()
    # A new descriptor is there when its call ends, an old one is gone when its call begins.
    makes = {*OPENS, *(name.removeprefix("?") for name in _DUPS)}
    for call in sorted(calls, key=lambda call: call.ended if call.name in makes else call.began):
        if call.result >= 0:
            for access in _step(state, call):
                if f"{access.file}/".startswith(f"{folder}/"):
                    yield access


def _step(state: _State, call: Call) -> Iterator[Access]:
    table = state.tables.setdefault(call.tid, {})
    name, arguments = call.name, call.arguments.split(", ")
    if f"?{name}" in _CLONES or name in _CLONES:
        state.tables[call.result] = table if "CLONE_FILES" in call.arguments else dict(table)
        return
    if name in OPENS and "O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY" in call.arguments:
        return  # opendir of glibc, and of what lists folders through it
    if name in OPENS:
        table[call.result] = _File(call.path, "O_APPEND" in call.arguments)
        if "O_TRUNC" in call.arguments or name == "creat":
            state.sizes[call.path] = 0
        yield Access(call.tid, "open", call.path)
        return
    if name in ("rename", "truncate"):
        paths = _PATH.findall(call.arguments)
        if name == "rename" and paths[0] in state.sizes:
            state.sizes[paths[1]] = state.sizes.pop(paths[0])
        elif name == "truncate":
            state.sizes[paths[0]] = int(arguments[1])
        return
    numbers = [None if (found := _FD.match(argument)) is None else int(found[1]) for argument in arguments]
    if name == "mmap":
        mapped = None if numbers[4] is None else table.get(numbers[4])
        if mapped is not None:
            yield Access(call.tid, "mmap", mapped.path, int(arguments[5], 0), int(arguments[1]))
        return
    file = None if numbers[0] is None else table.get(numbers[0])
    if name in COPIES:
        yield from _copy(state, call, table, arguments)
    elif file is None:
        return
    elif name in ("dup", "dup2", "dup3") or (name == "fcntl" and arguments[1].startswith("F_DUPFD")):
        table[call.result] = file
    elif name == "close":
        del table[numbers[0] or 0]
        yield Access(call.tid, "close", file.path)
    elif name == "lseek":
        file.offset = call.result
        yield Access(call.tid, "lseek", file.path, call.result)
    elif name in (*READS, *WRITES):
        yield _moved(state, call, file)
    elif name in ("ftruncate", "fallocate"):
        end = int(arguments[1]) if name == "ftruncate" else int(arguments[2]) + int(arguments[3])
        state.sizes[file.path] = end if name == "ftruncate" else max(end, state.sizes.get(file.path, 0))
    elif name in ("fsync", "fdatasync", "sync_file_range"):
        yield Access(call.tid, name, file.path)


def _moved(state: _State, call: Call, file: _File) -> Access:
    """A read or write, at its own offset or at that of the open file."""
    writes = call.name in WRITES
    offset = call.offset
    if offset is None or offset == -1:
        offset = state.sizes.get(file.path, 0) if writes and file.append else file.offset
        file.offset = offset + call.result
    if writes:
        state.grow(file, offset + call.result)
    return Access(call.tid, normal_name(call.name), file.path, offset, call.result)


def _copy(state: _State, call: Call, table: dict[int, _File], arguments: list[str]) -> Iterator[Access]:
    """Both sides of a copy within the kernel: what was read, then what was written."""
    if call.name == "sendfile":
        target, source, source_at, target_at = arguments[0], arguments[1], arguments[2], "NULL"
    else:
        source, source_at, target, target_at = arguments[:4]
    for text, at, writes in ((source, source_at, False), (target, target_at, True)):
        found = _FD.match(text)
        file = None if found is None else table.get(int(found[1]))
        if file is None:
            continue
        if at == "NULL":
            offset = file.offset
            file.offset += call.result
        else:
            offset = int(at.split(" ")[0].strip("[]"))
        if writes:
            state.grow(file, offset + call.result)
        yield Access(call.tid, "write" if writes else call.name, file.path, offset, call.result)
