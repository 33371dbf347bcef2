"""Files of recorded requests: NumPy archives without pickles, version 1.

An archive (``requests.npz``) holds ``version`` (a single number, 1) and the arrays of
:class:`~dlio_torch.formats.extents.requests.Requests`:

========================  ==========  ========================================================================
array                     type        content
========================  ==========  ========================================================================
``file_bytes``            int64       bytes of each file
``sample_first``          int64       number of the first request of each sample; one more entry than samples
``request_call``          uint8       0 open, 1 close, 2 lseek, 3 read, 4 pread, 5 readv, 6 preadv, 7 fstat,
                                      8 stat, 9 mmap, 10 use of mapped bytes, 11 munmap
``request_file``          int32       number of the file
``request_offset``        int64       first byte in the file, also of a read at the descriptor's position
``request_bytes``         int64       bytes that are read, mapped or used
``start_first``           int64       first request of a process before its first sample, and the one behind the
                                      last; may be left out
``file_first``            int64       requests with which a process opens each file, unless a recorded open does;
                                      one more entry than files; may be left out
========================  ==========  ========================================================================
"""

from __future__ import annotations

import os
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.extents.requests import DTYPES, Requests, check_requests

VERSION = 1
"""Version of the archive."""
_OPTIONAL = ("start_first", "file_first")
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, NotImplementedError)
_KEPT = 16  # archives that stay in memory


def write_requests(path: str | os.PathLike[str], requests: Requests, *, compressed: bool = True) -> None:
    """Writes an archive.

    Args:
        path: of the file, ``requests.npz``.
        requests: its content.
        compressed: deflate the arrays.

    Raises:
        DataError: the arrays do not fit each other.
        OSError: the file cannot be written.
    """
    check_requests(requests, str(path))
    arrays = {name: getattr(requests, name) for name in DTYPES}
    save = np.savez_compressed if compressed else np.savez
    with open(path, "wb") as file:
        save(file, version=np.array(VERSION), **arrays)


def read_requests(path: str | os.PathLike[str]) -> Requests:
    """Reads an archive.

    Raises:
        DataError: one line: missing, no archive, of another version, or its arrays do not fit each other.
    """
    place = Path(path)
    with os_errors(place):
        try:
            arrays = _arrays(place)
        except _DAMAGE as error:
            raise DataError(
                f"{place} is no archive of recorded requests: {str(error) or type(error).__name__}",
                hint="name the requests.npz that fit wrote, or generate the data again",
            ) from error
    requests = Requests(**arrays)
    check_requests(requests, str(place))
    return requests


def kept_requests(path: str) -> Requests:
    """Same as :func:`read_requests`, but reads an unchanged file once in a process.

    Raises:
        DataError: see there.
    """
    place = Path(path).expanduser()
    with os_errors(place):
        status = place.stat()
    # The inode tells files apart that were written within one tick of the clock and swapped.
    return _kept(str(place.absolute()), status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=_KEPT)
def _kept(path: str, changed_ns: int, size: int, inode: int) -> Requests:
    return read_requests(path)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a zip file")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            version = archive["version"]
            if version.shape != () or version != VERSION:
                raise ValueError(f"its version is {version}, and {VERSION} is read")
            return {name: archive[name] for name in DTYPES if name not in _OPTIONAL or name in archive}
