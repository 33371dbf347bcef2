"""Stored chunks, encoded by Python's libraries."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence

import numpy as np

from dlio_torch.formats.core import codecs
from dlio_torch.native.chunks import ChunkFilter


def encoded(content: bytes, filters: Sequence[ChunkFilter], skipped: int, itemsize: int) -> bytes:
    """A chunk of this content as it is stored after all filters but the skipped ones; see ``NativeChunks``."""
    for number, code in enumerate(filters):
        if skipped >> number & 1:
            continue
        whole = np.frombuffer(content[: len(content) // itemsize * itemsize], np.uint8).reshape(-1, itemsize)
        rest = content[whole.size :]
        if code is ChunkFilter.DEFLATE:
            content = zlib.compress(content, 4)
        elif code is ChunkFilter.GZIP_FILE:
            content = gzip.compress(content, 4)
        elif code is ChunkFilter.SHUFFLE:
            content = whole.T.tobytes() + rest
        elif code is ChunkFilter.TURNED:
            content = whole[:, ::-1].tobytes()
        elif code is ChunkFilter.ZSTD:
            from numcodecs import zstd

            content = zstd.compress(content, 1)
        elif code is ChunkFilter.CRC32C:
            import google_crc32c

            content += google_crc32c.value(content).to_bytes(4, "little")
        else:
            first, second = codecs.fletcher32(memoryview(content))
            content += first.to_bytes(2, "little") + second.to_bytes(2, "little")
    return content
