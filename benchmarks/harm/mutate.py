"""Damages the bytes of a file; the seed determines the damage.

Blind changes seldom reach what is behind a checksum or a strict header, so some know what they do: numbers become
lengths that no memory has, words become other words, pieces of the file change places.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

Damage = Callable[[random.Random, bytearray], None]

_LENGTHS = (
    0, 1, -1, 2, 7, 255, 256, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62) - 1,
    1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 16,
)  # fmt: skip
_FORMS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS = (
    b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"9" * 40, b"9" * 5000, b"18446744073709551616", b"null", b"true",
    b'""', b"{}", b"[]", b"[" * 100_000, b'{"a":' * 2000, b"\x00", b"\xff\xfe", b"\x1b[31m", b"\n", b",", b'"',
    b"\\u0000",    b"\\ud800", b"<script>", b"../../../etc/passwd", b"\xe2\x80\xae",
)  # fmt: skip


def _at(rng: random.Random, data: bytearray) -> int:
    """Draws an offset; about half of them lie in the headers and tables at the begin or the end."""
    size = len(data)
    where = rng.random()
    if where < 0.3:
        return rng.randrange(min(size, 512))
    return size - 1 - rng.randrange(min(size, 512)) if where < 0.5 else rng.randrange(size)


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        data[_at(rng, data)] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 3, 8))):
        data[_at(rng, data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _length(rng: random.Random, data: bytearray) -> None:
    form = rng.choice(_FORMS)
    width = struct.calcsize(form)
    at = min(_at(rng, data), max(0, len(data) - width))
    if rng.random() < 0.5:
        at -= at % width
    data[at : at + width] = struct.pack(form, rng.choice(_LENGTHS) % (1 << 8 * width))


def _near(rng: random.Random, data: bytearray) -> None:
    """Draws a value a little larger or smaller than the present one, which is hardest to detect."""
    form = rng.choice(_FORMS[1:])
    width = struct.calcsize(form)
    if len(data) >= width:
        at = min(_at(rng, data), len(data) - width)
        at -= at % width
        (value,) = struct.unpack_from(form, data, at)
        struct.pack_into(form, data, at, (value + rng.choice((-16, -8, -2, -1, 1, 2, 8, 16))) % (1 << 8 * width))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[_at(rng, data) :]


def _take_out(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    del data[at : at + rng.choice((1, 2, 8, 100, 4096))]


def _twice(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    size = rng.choice((1, 8, 100, 4096))
    data[at:at] = data[at : at + size] * rng.choice((1, 1, 2, 30))


def _move(rng: random.Random, data: bytearray) -> None:
    size = rng.choice((4, 8, 16, 100, 512))
    source, target = _at(rng, data), _at(rng, data)
    piece = bytes(data[source : source + size])
    data[target : target + len(piece)] = piece


def _zeros(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    size = min(rng.choice((4, 16, 64, 512, 4096)), len(data) - at)
    data[at : at + size] = bytes(size)


def _noise(rng: random.Random, data: bytearray) -> None:
    at = _at(rng, data)
    data[at : at + rng.choice((0, 0, 16))] = rng.randbytes(rng.choice((1, 4, 16, 300)))


def _word(rng: random.Random, data: bytearray) -> None:
    found = list(_NUMBER.finditer(data))
    if found and rng.random() < 0.8:
        one = rng.choice(found)
        low, high = one.span()
    else:
        low = high = _at(rng, data)
    data[low:high] = rng.choice(_WORDS)


BINARY: tuple[Damage, ...] = (
    _flip,
    _flip,
    _byte,
    _length,
    _length,
    _near,
    _cut,
    _take_out,
    _twice,
    _move,
    _zeros,
    _noise,
)
TEXT: tuple[Damage, ...] = (_flip, _byte, _cut, _take_out, _twice, _move, _noise, _word, _word, _word)


def damaged(rng: random.Random, content: bytes, kinds: tuple[Damage, ...] = BINARY) -> bytes:
    """Damages content by one to four changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        rng.choice(kinds)(rng, data)
    return bytes(data)
