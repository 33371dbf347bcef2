"""Describes a flat file of token ids, from its size and its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.tokens.header import stated
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.tokens.reader import STORED
from dlio_torch.formats.tokens.windows import Windows
from dlio_torch.units import counted

_USUAL: list[np.dtype[Any]] = [np.dtype(np.uint16), np.dtype(np.uint32)]  # types that tools write


def describe(path: Path) -> DataDescription:
    """Describes a file; without a header the type of its tokens is an open question.

    Raises:
        DataError: empty, or its size contradicts its header.
    """
    content = stated(path)
    with os_errors(path):
        size = path.stat().st_size
    if not size:
        raise DataError(f"{path} is empty", hint="generate or fetch the file again")
    if content is None:
        return _bare(size)
    dtype, tokens = content
    windows = Windows.of(TokensConfig())
    return DataDescription(
        options={"dtype": dtype, "header": "llm.c"},
        samples=windows.count(tokens),
        arrays=(StoredArray(STORED, dtype, (tokens,), stored_bytes=size),),
        notes=(_about_windows(windows),),
    )


def _bare(size: int) -> DataDescription:
    counts = [f"{counted(size // each.itemsize, 'token')} of {each}" for each in _USUAL if size % each.itemsize == 0]
    amount = ", or ".join(counts) if counts else "no whole number of tokens of uint16 or uint32"
    return DataDescription(
        arrays=(StoredArray(STORED, "not stated", stored_bytes=size),),
        notes=(f"{counted(size, 'byte')}: {amount}", _about_windows(Windows.of(TokensConfig()))),
        questions=(
            OpenQuestion(
                f"a file of bare token ids does not state their type ({amount}; dataset.tokens.dtype= takes the other "
                "one as well)",
                "dataset.tokens.dtype=uint16",
            ),
        ),
    )


def _about_windows(windows: Windows) -> str:
    return (
        f"a sample is a window of {windows.length} tokens with its targets; set dataset.tokens.window to the length of "
        "your context, and dataset.tokens.stride=1 for windows that start at any token"
    )


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Adds ``tokens`` and ``dtype`` of a file with a header to ``content``; of others the format stays unknown.

    Raises:
        DataError: its size contradicts its header.
    """
    header = stated(path)
    if header is None:
        content["format"] = None  # any program calls its files .bin
    else:
        content["dtype"], content["tokens"] = header
