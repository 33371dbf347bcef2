"""Parses lines of strace: thread, time, call, arguments, result, duration.

Understood are the options ``-f``, ``-ff``, ``-t``, ``-tt``, ``-ttt``, ``-r``, ``-T``, ``-y``, ``-yy``, ``-x``,
``-xx`` in any mix, of strace 4.8 and later.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass

_DAY_NS = 86_400 * 10**9
_PREFIX = re.compile(
    rb"(?:\[pid\s+(?P<bracket>\d{1,10})(?:<[^>]*>)?\] |(?P<plain>\d{1,10})(?:<[^>]*>)?\s+(?=[\d<+\-a-z_]))?"
    rb"(?:(?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<clock_part>\d+))? |(?P<unix>\d{8,11})(?:\.(?P<unix_part>\d+))? )?"
    rb"\s*(?:(?P<brace>\(\+\s*)?(?P<since>\d{1,9})\.(?P<since_part>\d{6,9})(?(brace)\)) )?\s*"
)
_UNFINISHED = b"<unfinished ...>"
_RESUMED = re.compile(rb"<\.\.\. (?P<name>\w+) resumed>\s*")
_CALL = re.compile(
    rb"(?P<name>[a-z_]\w*)\((?P<arguments>.*)\)\s+= (?P<result>-?\d{1,20}|0x[0-9a-f]{1,16}|\?)(?P<rest>.*?)"
    rb"(?:\s<(?P<took>\d{1,9})\.(?P<took_part>\d+)>)?\Z",
    re.DOTALL,
)
_NAME = re.compile(rb"[a-z_]\w*\(")
# A damaged line must not take a time that grows faster than it does: nothing is repeated that repeats itself, and
# nothing is searched for that begins with a repetition.
_FD = rb"(?P<number>-?\d{1,10}|AT_FDCWD)(?:<(?P<path>[^<>\\]*(?:(?:\\.|<[^<>]*>)[^<>\\]*)*)>)?"
_DESCRIPTOR = re.compile(_FD)
_MAPPING = re.compile(rb", " + _FD + rb", (?P<offset>0x[0-9a-f]{1,16}|\d{1,19})$")
_STRING = re.compile(rb'"(?P<text>(?:[^"\\]|\\.)*)"')
_OFFSET = re.compile(rb"(?:NULL|\[(?P<at>\d{1,19})\](?: => \[\d{1,19}\])?)(?=, )")
_DEVICE = re.compile(rb"<(?:char|block) [\d:]+>$")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Thread and time at the begin of a line.

    Args:
        tid: the thread, None where the line does not say.
        time_ns: wall-clock time, time of day, or (``relative``) time since the line before; None: not told.
        relative: whether it is relative.
        daily: whether it is a time of day.
    """

    tid: int | None
    time_ns: int | None
    relative: bool
    daily: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One system call as strace writes it.

    Args:
        name: its name.
        arguments: what stands in the parentheses.
        result: return value; None: it did not return.
        path: what ``-y`` prints behind a returned descriptor, decoded; None without.
        took_ns: what ``-T`` printed, None without.
    """

    name: str
    arguments: bytes
    result: int | None
    path: str | None
    took_ns: int | None


def stamp(line: bytes) -> tuple[Stamp, bytes]:
    """Parses the thread and time of a line; returns them and the rest of the line."""
    match = _PREFIX.match(line)
    assert match is not None  # every part is optional
    tid = match["bracket"] or match["plain"]
    time_ns: int | None = None
    if match["clock"]:
        hours, minutes, seconds = map(int, match["clock"].split(b":"))
        time_ns = ((hours * 60 + minutes) * 60 + seconds) * 10**9 + _fraction(match["clock_part"])
    elif match["unix"]:
        time_ns = int(match["unix"]) * 10**9 + _fraction(match["unix_part"])
    elif match["since"]:
        time_ns = int(match["since"]) * 10**9 + _fraction(match["since_part"])
    relative = time_ns is not None and not match["clock"] and not match["unix"]
    daily = match["clock"] is not None
    return Stamp(None if tid is None else int(tid), time_ns, relative, daily), line[match.end() :]


def is_begin(rest: bytes) -> bytes | None:
    """First part of an interrupted call, without its mark; None for any other line."""
    line = rest.rstrip()
    return line[: -len(_UNFINISHED)].rstrip() if line.endswith(_UNFINISHED) else None


def is_end(rest: bytes) -> tuple[str, bytes] | None:
    """Name and second part of a resumed call; None for any other line."""
    match = _RESUMED.match(rest)
    return None if match is None else (match["name"].decode(), rest[match.end() :])


def is_remark(rest: bytes) -> bool:
    """Whether a line is about a signal or an exit, or is a remark of strace itself."""
    return rest.startswith((b"---", b"+++", b"strace:")) or not rest.strip()


def call(text: bytes) -> Call | None:
    """Parses one complete call; returns None if the text is not one."""
    match = _CALL.match(text.rstrip())
    if match is None:
        return None
    result = None if match["result"] == b"?" else _number(match["result"])
    path = None
    if match["rest"].startswith(b"<"):
        opened = _DESCRIPTOR.match(b"0" + match["rest"])
        path = None if opened is None or opened["path"] is None else _path(opened["path"])
    took = None if match["took"] is None else int(match["took"]) * 10**9 + _fraction(match["took_part"])
    return Call(match["name"].decode(), match["arguments"], result, path, took)


def looks_like_strace(text: bytes) -> bool:
    """Whether some of the first lines of a file are system calls as strace writes them."""
    lines = text.splitlines()[:200]
    complete = [line for line in lines if _NAME.match(stamp(line)[1]) and (call(stamp(line)[1]) or is_begin(line))]
    return len(complete) > 0 and 2 * len(complete) >= sum(not is_remark(stamp(line)[1]) for line in lines[:-1])


def descriptor(arguments: bytes, place: int = 0) -> tuple[int, str | None]:
    """Descriptor in the first (or second) argument, and its path if ``-y`` shows it; -1 if there is no descriptor."""
    match = _DESCRIPTOR.match(arguments)
    if place == 1 and match is not None:
        match = _DESCRIPTOR.match(arguments, match.end() + 2)
    return _number_and_path(match)


def mapping(arguments: bytes) -> tuple[int, str | None, int, int] | None:
    """Descriptor, path, length and offset of an mmap; None for an mmap without a file."""
    match = _MAPPING.search(arguments)
    number, path = _number_and_path(match)
    if match is None or number < 0:
        return None
    length = arguments.split(b", ", 2)[1]
    return number, path, int(length) if length.isdigit() and len(length) < 20 else -1, _number(match["offset"])


@dataclass(frozen=True, slots=True)
class Copy:
    """Source and target of a copy within the kernel.

    Args:
        source: descriptor that is read, and its path where ``-y`` tells it.
        target: the one that is written, likewise.
        read_at: offset of the read, None: at the file's position.
        written_at: offset of the write, likewise.
    """

    source: tuple[int, str | None]
    target: tuple[int, str | None]
    read_at: int | None
    written_at: int | None


def copy(arguments: bytes, *, sends: bool) -> Copy | None:
    """Parses the arguments of copy_file_range and splice or (``sends``) of sendfile; None if they are damaged."""
    descriptors: list[tuple[int, str | None]] = []
    offsets: list[int | None] = []
    order = (_DESCRIPTOR, _DESCRIPTOR, _OFFSET) if sends else (_DESCRIPTOR, _OFFSET, _DESCRIPTOR, _OFFSET)
    position = 0
    for pattern in order:
        part = pattern.match(arguments, position)
        if part is None:
            return None
        if pattern is _OFFSET:
            offsets.append(None if part["at"] is None else int(part["at"]))
        else:
            descriptors.append(_number_and_path(part))
        position = part.end() + 2
    return (
        Copy(descriptors[1], descriptors[0], offsets[0], None)
        if sends
        else Copy(descriptors[0], descriptors[1], *offsets)
    )


def string(arguments: bytes) -> str | None:
    """The first string among the arguments, decoded."""
    first = arguments.find(b'"')
    match = None if first < 0 else _STRING.match(arguments, first)
    return None if match is None else _decoded(match["text"])


def tail(arguments: bytes, places: int) -> list[int | None]:
    """The last arguments of a call as numbers, which are plain in reads and writes."""
    words = arguments.rsplit(b", ", places)[1:]
    numbers: list[int | None] = []
    for word in words:
        try:
            numbers.append(_number(word))
        except ValueError:
            numbers.append(None)
    return [None] * (places - len(numbers)) + numbers


def following_day(earlier_ns: int, time_ns: int) -> int:
    """Nanoseconds to add to a time of day that follows another: a day if midnight lies between."""
    return _DAY_NS if time_ns < earlier_ns - _DAY_NS // 2 else 0


def _fraction(digits: bytes | None) -> int:
    """Nanoseconds from the digits after the decimal point."""
    return 0 if digits is None else int(digits.ljust(9, b"0")[:9])


def _number(word: bytes) -> int:
    return int(word, 16) if word.startswith(b"0x") else int(word)


def _number_and_path(match: re.Match[bytes] | None) -> tuple[int, str | None]:
    if match is None:
        return -1, None
    path = None if match["path"] is None else _path(match["path"])
    return -1 if match["number"] == b"AT_FDCWD" else int(match["number"]), path


def _path(text: bytes) -> str:
    """The path in ``<...>`` after a descriptor."""
    return _decoded(_DEVICE.sub(b"", text)).removesuffix(" (deleted)")


def _decoded(text: bytes) -> str:
    """Decodes strace's escapes; bytes that are not UTF-8 become surrogates, as in Python's file names."""
    if b"\\" in text:
        with contextlib.suppress(ValueError):
            text = codecs.escape_decode(text)[0]
    return text.decode("utf-8", "surrogateescape")
