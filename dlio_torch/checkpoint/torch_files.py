"""Files of ``torch.save``: written with the system's errors, read with one-line errors."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import torch

from dlio_torch.errors import DataError
from dlio_torch.syserrors import NO_SPACE

NOT_RESTORED = "start without train.resume and checkpoint.restore"
"""Way out when a checkpoint cannot be read."""

_WRITE_ERRORS = NO_SPACE | {errno.EIO, errno.EROFS, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO}
"""Numbers with which a call that writes to an open file fails."""
_C_ERRNO = "__errno_location"  # of glibc and musl


def save_torch_file(content: Any, path: Path) -> None:
    """Write a file with ``torch.save``.

    torch writes through C++ streams, and its error only says that a write failed.  The number of the last failure is
    still in the C library's ``errno`` of this thread then.

    Raises:
        OSError: the system cannot write it, with the system's number.
        RuntimeError: torch cannot write it for another reason, or the C library does not tell its number.
    """
    number = _c_errno()
    number.value = 0
    try:
        torch.save(content, path)
    except RuntimeError as error:
        if number.value not in _WRITE_ERRORS:
            raise
        raise OSError(number.value, os.strerror(number.value), str(path)) from error


def _c_errno() -> ctypes.c_int:
    """The C library's ``errno`` of this thread; where its place is not known, a number that stays 0."""
    location = getattr(ctypes.CDLL(None), _C_ERRNO, None)
    if location is None:
        return ctypes.c_int(0)
    location.restype = ctypes.POINTER(ctypes.c_int)
    place: ctypes.c_int = location().contents
    return place


def load_torch_file(path: Path) -> Any:
    """Read a file with ``torch.load``.

    Raises:
        DataError: the file is damaged.
        OSError: the system cannot read it.
    """
    try:
        return torch.load(path, weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # the unpickler raises all kinds, the reader of archives also EINVAL for a wrong offset
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"checkpoint file {path} is damaged: {text}", hint=NOT_RESTORED) from error
