"""Content of the raw files: random bytes that depend on seed, copy of the recording, file and offset alone.

The offset is that of the recorded file, whatever was left out of a smaller one, so that a sample has the same content
at any scale.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core import payload

_BLOCK = 4096  # bytes that one key of the generator gives

Bytes = npt.NDArray[np.uint8]


def file_content(seed: int, copy: int, file: int, offset: int, size: int) -> Bytes:
    """Bytes of a recorded file.

    Args:
        seed: of the data set.
        copy: number of the copy of the recording.
        file: number of the recorded file.
        offset: first byte.
        size: bytes.
    """
    low, high = offset // _BLOCK, -(-(offset + size) // _BLOCK)
    content = np.empty((high - low) * _BLOCK, np.uint8)
    if len(content):
        payload.fill(content, _key(seed, copy, file), 0, low, np.full(high - low, _BLOCK, np.int64))
    return content[offset - low * _BLOCK :][:size]


def _key(seed: int, copy: int, file: int) -> int:
    """Seed of a file: 64 bits."""
    text = f"{seed} {copy} {file}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
