"""Decoding of chunks in native code: what Python's libraries give, and no damage unseen, by every library."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from chunk_cases import encoded
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch import native
from dlio_torch.errors import DataError
from dlio_torch.formats.core import codecs
from dlio_torch.native.chunks import LIBRARIES, ChunkBatch, ChunkFilter, ChunkResult, NativeChunks
from dlio_torch.native.memory import address_of

NAMES = {
    ChunkFilter.DEFLATE: codecs.DEFLATE,
    ChunkFilter.SHUFFLE: codecs.SHUFFLE,
    ChunkFilter.FLETCHER32: codecs.FLETCHER32,
    ChunkFilter.TURNED: codecs.TURNED,
    ChunkFilter.GZIP_FILE: codecs.GZIP_FILE,
    ChunkFilter.ZSTD: codecs.ZSTD,
    ChunkFilter.CRC32C: codecs.CRC32C,
}
COMPRESSED = (ChunkFilter.DEFLATE, ChunkFilter.GZIP_FILE)
OF_ZARR = importlib.util.find_spec("numcodecs") is not None and importlib.util.find_spec("google_crc32c") is not None


def inflating(name: str | None = None) -> NativeChunks:
    """The native decoder by one of its libraries, or a skipped test without it."""
    try:
        chunks = NativeChunks(name)
    except native.NativeUnavailable as error:
        pytest.skip(str(error))
    if chunks.library is None:
        pytest.skip("needs one of the libraries " + ", ".join(LIBRARIES))
    return chunks


def installed() -> list[NativeChunks]:
    """The native decoder by each of the libraries that this machine has."""
    inflating()
    decoders = []
    for name in LIBRARIES:
        with contextlib.suppress(native.NativeUnavailable):
            decoders.append(NativeChunks(name))
    return decoders


@pytest.fixture(params=LIBRARIES)
def chunks(request: pytest.FixtureRequest) -> NativeChunks:
    return inflating(request.param)


def native_decoded(
    chunks: NativeChunks, stored: bytes, filters: Sequence[ChunkFilter], skipped: int, size: int, itemsize: int
) -> tuple[ChunkResult, bytes]:
    """Decodes one chunk to memory whose neighbours must stay as they are."""
    memory, source = np.full(size + 32, 7, np.uint8), np.frombuffer(stored, np.uint8).copy()
    zero = np.zeros(1, np.int64)
    batch = ChunkBatch(
        filters, itemsize, size, None, zero + address_of(source), zero + len(stored), zero + skipped,
        zero, zero, zero + size, zero + address_of(memory) + 16,
    )  # fmt: skip
    result, failed = chunks.decode(batch)
    assert failed == 0
    assert (memory[:16] == 7).all()
    assert (memory[size + 16 :] == 7).all()
    return result, memory[16 : size + 16].tobytes()


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[ChunkFilter], int, int]:
    """Content, filters of which at most one compresses, filters left out, bytes of an element."""
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    turned = [ChunkFilter.TURNED] if itemsize in (2, 4, 8) and draw(st.booleans()) else []
    sums = [ChunkFilter.FLETCHER32, *([ChunkFilter.CRC32C] if OF_ZARR else [])]
    others = draw(st.lists(st.sampled_from([ChunkFilter.SHUFFLE, *sums]), max_size=3))
    compressor = draw(st.sampled_from([None, *COMPRESSED, *([ChunkFilter.ZSTD] if OF_ZARR else [])]))
    if compressor is not None:
        others.insert(draw(st.integers(0, len(others))), compressor)
    filters = [*turned, *others]
    count = draw(st.sampled_from([0, 1, 15, 16, 17, 100, 1500]))
    values = random.Random(draw(st.integers(0, 99)))
    content = bytes(values.choices(range(draw(st.sampled_from([1, 3, 256]))), k=count * itemsize))
    return content, filters, draw(st.integers(0, 2 ** len(filters) - 1)), itemsize


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_any_filters_are_undone_by_any_library(case: tuple[bytes, list[ChunkFilter], int, int]) -> None:
    content, filters, skipped, itemsize = case
    stored = encoded(content, filters, skipped, itemsize)
    for chunks in installed():
        got = native_decoded(chunks, stored, filters, skipped, len(content), itemsize)
        left = ChunkFilter.ZSTD in filters or (chunks.library == "isa-l" and ChunkFilter.GZIP_FILE in filters)
        if left and got[0] is ChunkResult.UNSUPPORTED:
            continue  # Python decodes it
        assert got == (ChunkResult.SOUND, content), chunks.library


@settings(max_examples=200, deadline=None)
@given(case=cases(), data=st.data())
def test_damage_that_python_refuses_is_never_accepted(
    case: tuple[bytes, list[ChunkFilter], int, int], data: st.DataObject
) -> None:
    content, filters, skipped, itemsize = case
    sound = encoded(content, filters, skipped, itemsize)
    stored = bytearray(sound)
    kind = data.draw(st.sampled_from(["flip", "cut", "longer"]))
    if kind == "flip" and stored:
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del stored[data.draw(st.integers(0, len(stored))) :]
    else:
        stored += b"more"
    names = tuple(NAMES[code] for code in filters)
    try:
        want = codecs.decoded(memoryview(bytes(stored)), names, skipped, len(content), itemsize, "here").tobytes()
    except (DataError, ValueError):  # NumPy refuses elements that are cut
        want = None
    if stored == sound:
        want = content  # cut behind its end; numcodecs refuses whole frames that hold nothing
    for chunks in installed():
        result, got = native_decoded(chunks, bytes(stored), filters, skipped, len(content), itemsize)
        if result is ChunkResult.SOUND:
            assert got == want, chunks.library


@pytest.mark.parametrize(
    "filters", [[ChunkFilter.FLETCHER32], [ChunkFilter.SHUFFLE, ChunkFilter.DEFLATE, ChunkFilter.FLETCHER32]]
)
def test_each_flipped_bit_and_each_cut_is_an_error(chunks: NativeChunks, filters: list[ChunkFilter]) -> None:
    content = bytes(range(200))
    stored = encoded(content, filters, 0, 4)
    assert native_decoded(chunks, stored, filters, 0, 200, 4)[0] is ChunkResult.SOUND
    for bit in range(8 * len(stored)):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        assert native_decoded(chunks, bytes(damaged), filters, 0, 200, 4)[0] is ChunkResult.WRONG_CHECKSUM, bit
    for length in range(len(stored)):
        assert native_decoded(chunks, stored[:length], filters, 0, 200, 4)[0] is not ChunkResult.SOUND, length


@pytest.mark.parametrize("code", COMPRESSED)
def test_each_cut_stream_is_an_error(chunks: NativeChunks, code: ChunkFilter) -> None:
    content = random.Random(1).randbytes(100) + bytes(400)
    stored = encoded(content, [code], 0, 1)
    for length in range(len(stored)):
        assert native_decoded(chunks, stored[:length], [code], 0, 500, 1)[0] in (
            ChunkResult.DAMAGED,
            ChunkResult.UNSUPPORTED,
        )


def test_a_stream_of_another_size_is_an_error(chunks: NativeChunks) -> None:
    stored = zlib.compress(bytes(1000))
    for size in (999, 1001, 1, 5000):
        assert native_decoded(chunks, stored, [ChunkFilter.DEFLATE], 0, size, 1)[0] is ChunkResult.WRONG_SIZE


def test_a_stream_in_a_stream_and_an_unknown_size_of_elements_are_left_to_python(chunks: NativeChunks) -> None:
    twice = [ChunkFilter.DEFLATE, ChunkFilter.DEFLATE]
    assert native_decoded(chunks, encoded(b"1234", twice, 0, 1), twice, 0, 4, 1)[0] is ChunkResult.UNSUPPORTED
    assert native_decoded(chunks, b"123456", [ChunkFilter.TURNED], 0, 6, 3)[0] is ChunkResult.UNSUPPORTED


def test_checksums_of_old_libraries_are_accepted(chunks: NativeChunks) -> None:
    stored = bytearray(encoded(bytes(range(50)), [ChunkFilter.FLETCHER32], 0, 1))
    stored[-4:] = bytes([stored[-3], stored[-4], stored[-1], stored[-2]])
    assert native_decoded(chunks, bytes(stored), [ChunkFilter.FLETCHER32], 0, 50, 1)[0] is ChunkResult.SOUND


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_fragments_of_many_chunks_go_to_their_addresses(data: st.DataObject) -> None:
    chunks, filters = inflating(), data.draw(st.sampled_from([[], [ChunkFilter.SHUFFLE, ChunkFilter.DEFLATE]]))
    size, itemsize, count = 60, 4, data.draw(st.integers(1, 5))
    contents = [random.Random(number).randbytes(size) for number in range(count)]
    unwritten = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    stored = [b"" if never else encoded(c, filters, 0, itemsize) for never, c in zip(unwritten, contents, strict=True)]
    whole = np.frombuffer(b"".join(stored) + b"-", np.uint8).copy()
    lengths = np.array([len(part) for part in stored], np.int64)
    plan, want, end = [], b"", 0
    for number in range(count):
        for _ in range(data.draw(st.integers(0, 3))):
            low = data.draw(st.integers(0, size // itemsize - 1)) * itemsize
            length = data.draw(st.integers(1, (size - low) // itemsize)) * itemsize
            plan.append((number, low, length, end))
            want += (b"fill" * size if unwritten[number] else contents[number])[low : low + length]
            end += length
    memory = np.zeros(max(1, end), np.uint8)
    chunk, source, sizes, to = (np.ascontiguousarray(column) for column in np.array(plan, np.int64).reshape(-1, 4).T)
    batch = ChunkBatch(
        filters, itemsize, size, b"fill", address_of(whole) + np.cumsum(lengths) - lengths, lengths, 0 * lengths,
        chunk, source, sizes, to + address_of(memory),
    )  # fmt: skip
    assert chunks.decode(batch)[0] is ChunkResult.SOUND
    assert memory[:end].tobytes() == want


def test_the_damaged_chunk_is_named_and_those_before_it_are_done() -> None:
    chunks, memory = inflating(), np.zeros(30, np.uint8)
    stored = np.frombuffer(b"".join([zlib.compress(b"a" * 10), b"x" * 18, zlib.compress(b"b" * 10)]), np.uint8).copy()
    first = len(zlib.compress(b"a" * 10))
    lengths = np.array([first, 18, len(stored) - first - 18], np.int64)
    numbers = np.arange(3, dtype=np.int64)
    batch = ChunkBatch(
        [ChunkFilter.DEFLATE], 1, 10, None, address_of(stored) + np.cumsum(lengths) - lengths, lengths, 0 * numbers,
        numbers, 0 * numbers, 0 * numbers + 10, address_of(memory) + 10 * numbers,
    )  # fmt: skip
    assert chunks.decode(batch) == (ChunkResult.DAMAGED, 1)
    assert memory[:10].tobytes() == b"a" * 10
    assert not memory[20:].any()


def test_a_library_that_is_missing_is_named() -> None:
    inflating()
    with pytest.raises(native.NativeUnavailable, match="quick"):
        NativeChunks("quick")
