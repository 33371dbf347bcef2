"""Reads at an offset of an open file, repeated where the system answers with fewer bytes than were requested."""

from __future__ import annotations

import os
from collections.abc import Callable


def read_exactly(descriptor: int, offset: int, size: int, pread: Callable[[int, int, int], bytes] = os.pread) -> bytes:
    """Reads ``size`` bytes at ``offset``, fewer at the end of the file; repeats the call after a short read."""
    content = pread(descriptor, size, offset)
    while len(content) < size:
        more = pread(descriptor, size - len(content), offset + len(content))
        if not more:
            break
        content += more
    return content


def read_into(descriptor: int, offset: int, memory: memoryview, request: int) -> int:
    """Fills memory with the bytes from ``offset`` on.

    Args:
        descriptor: of the open file.
        offset: first byte.
        memory: of single bytes.
        request: most bytes of a call.

    Returns:
        Number of bytes, fewer than ``memory`` has where the file ends.
    """
    done = 0
    while done < len(memory) and (got := os.preadv(descriptor, [memory[done : done + request]], offset + done)):
        done += got
    return done
