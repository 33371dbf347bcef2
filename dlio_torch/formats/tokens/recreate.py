"""Options that generate files of tokens like existing ones; the program's samples tell their type and the window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation
from dlio_torch.formats.tokens.options import TokensConfig


@dataclass(frozen=True)
class _Windows:
    """Windows over a file of tokens.

    Attributes:
        dtype: element type of the tokens.
        stride: tokens from window to window; 0: windows side by side.
        surplus: tokens by which the program's length differs from the number of such windows.
    """

    dtype: str
    stride: int
    surplus: int


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files.

    Raises:
        DataError: the program's samples do not tell the window and the type.
    """
    if not reads.arrays or reads.samples is None or not reads.arrays[0].shape:
        raise DataError("the window of a sample is not known, since the program's loader gave no arrays")
    window = reads.arrays[0].shape[-1]
    size = sum(path.stat().st_size for path in reads.files)
    open_options = {question.setting.partition("=")[0].rpartition(".")[2] for question in description.questions}
    known = description.options.get("dtype")
    names = [known] if known and "dtype" not in open_options else list(get_args(get_type_hints(TokensConfig)["dtype"]))
    windows = min(_candidates(names, size, window, reads.samples), key=lambda candidate: abs(candidate.surplus))
    options: dict[str, Any] = {
        **description.options,
        "dtype": windows.dtype,
        "window": window,
        "stride": windows.stride,
        "targets": len(reads.arrays) > 1,
        "memory_map": bool(len(reads.calls_of("mmap"))),
        "reopen": _reopen(reads),
    }
    length = f"the program's data set has {reads.samples} samples of {window} tokens in {size} bytes"
    evidence = dict.fromkeys(("dtype", "window", "stride"), length)
    evidence["targets"] = f"a batch has {len(reads.arrays)} arrays"
    evidence["memory_map"] = f"{len(reads.calls_of('mmap'))} maps of the files"
    evidence["reopen"] = f"{len(reads.calls_of('open'))} opens"
    per_file = windows_in(reads.files[0], windows.dtype, window, windows.stride)
    return Recreation((), options, samples_per_file=per_file, evidence=evidence)


def windows_in(path: Path, dtype: str, window: int, stride: int) -> int:
    """Number of windows in a file, each with the token behind it."""
    tokens = path.stat().st_size // np.dtype(dtype).itemsize
    return max(1, (tokens - 1 - window) // (stride or window) + 1)


def _candidates(names: list[str], size: int, window: int, samples: int) -> Iterator[_Windows]:
    """Types and strides, with the difference between their number of windows and the length of the program's data."""
    for name in names:
        tokens = size // np.dtype(name).itemsize
        for stride in (1, 0):
            count = (tokens - 1 - window) // (stride or window) + 1
            yield _Windows(name, stride, samples - count)


def _reopen(reads: ObservedReads) -> str:
    """Value of ``reopen``: a file that is opened more often than once in each process is opened for each batch."""
    opens = reads.calls_of("open").groupby(["pid", "file"], observed=True).size()
    return "batch" if len(opens) and opens.max() > 2 else "none"
