"""Header of llm.c's token files, and the number of tokens of a file.

256 integers of 32 bits, little-endian: a magic number, a version, the number of tokens, zeros (llm.c,
dev/data/data_common.py, ``HEADERS_INFO`` and ``write_datafile``; modded-nanogpt writes the first kind).
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error, os_errors
from dlio_torch.formats.tokens.facts import HEADER_BYTES, KINDS, MAGICS
from dlio_torch.formats.tokens.options import TokensConfig

_NUMPY = b"\x93NUMPY"
MOST_TOKENS = (1 << 31) - 1
"""Maximum number of tokens that a header can state."""


def header_of(dtype: str, tokens: int) -> bytes:
    """Header of a file of ``tokens`` tokens.

    Args:
        dtype: one of the element types in :data:`KINDS`.
        tokens: at most :data:`MOST_TOKENS`.
    """
    magic, version = next(kind for kind, name in KINDS.items() if name == dtype)
    return struct.pack("<3i", magic, version, tokens).ljust(HEADER_BYTES, b"\0")


def stated(path: Path) -> tuple[str, int] | None:
    """Element type and number of tokens in the header of a file; ``None``: it has no header.

    Raises:
        DataError: the file cannot be opened, or its size contradicts its header.
    """
    with os_errors(path), open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER_BYTES)
    if head.startswith(_NUMPY):
        raise DataError(
            f"{path} is a NumPy file, whose header is no tokens",
            hint="set dataset.format=npy, or write the array by its method tofile",
        )
    if not head.startswith(MAGICS):
        return None
    if len(head) < HEADER_BYTES:
        raise DataError(
            f"{path} ends within its header of {HEADER_BYTES} bytes",
            hint="the file is incomplete; generate or fetch the file again",
        )
    magic, version, tokens = struct.unpack_from("<3i", head)
    dtype = KINDS[magic, version]
    promised = HEADER_BYTES + tokens * np.dtype(dtype).itemsize
    if tokens < 0 or size != promised:
        raise DataError(
            f"{path}: its header counts {tokens} tokens of {dtype}, which need {promised} bytes, but the file has "
            f"{size} bytes",
            hint="the file is damaged or incomplete; generate or fetch the file again",
        )
    return dtype, tokens


def count_tokens(path: Path, options: TokensConfig) -> int:
    """Number of tokens in a file; for one without a header from its size alone, by one ``stat`` call.

    Raises:
        DataError: missing, no regular file, damaged, or of another element type.
    """
    if options.header == "llm.c":
        return _count_by_header(path, options.dtype)
    with os_errors(path):
        status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise open_error(path, IsADirectoryError())
    tokens, rest = divmod(status.st_size, np.dtype(options.dtype).itemsize)
    if rest or not tokens:
        raise DataError(
            f"{path} has {status.st_size} bytes, which is not a whole number of tokens of {options.dtype}",
            hint="correct dataset.tokens.dtype; if it is right, the file is incomplete",
        )
    return tokens


def _count_by_header(path: Path, dtype: str) -> int:
    content = stated(path)
    if content is None:
        raise DataError(
            f"{path} does not begin with a header of llm.c ({' or '.join(str(magic) for magic, _ in KINDS)})",
            hint="set dataset.tokens.header=none if the file holds nothing but tokens",
        )
    if content[0] != dtype:
        raise DataError(
            f"{path}: its header states tokens of {content[0]}, but dataset.tokens.dtype={dtype}",
            hint=f"set dataset.tokens.dtype={content[0]}",
        )
    return content[1]
