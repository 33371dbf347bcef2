"""Names of recorded I/O calls, and the classes in which figures count them.

An event of the layers ``posix``, ``stdio`` and ``mpiio`` has the name of its call as ``op``, without the
suffix of large-file variants: ``pread64`` is ``pread``, ``openat`` is ``open``.  Sources see different
calls (Darshan's extended tracing has reads and writes only), so two sources are compared by the classes
that both of them see.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.errors import harmless

READ = "read"
WRITE = "write"
OPEN = "open"
CLOSE = "close"
SEEK = "seek"
MAP = "map"
SYNC = "sync"
META = "meta"
"""Calls on names and attributes: stat, rename, unlink, truncate, failed opens and so on."""

FAILED_OPEN = "failed_open"
"""Recorded name of a failed open of a file or folder; its class is ``meta``, so it does not count as an open."""

CLASSES = (OPEN, CLOSE, READ, WRITE, SEEK, MAP, SYNC, META)

IO_LAYERS = ("posix", "stdio", "mpiio")

_ALIASES = {
    **{"openat": "open", "openat2": "open", "creat": "open", "__open_2": "open", "_llseek": "lseek"},
    **{"__xstat": "stat", "__fxstat": "fstat", "__lxstat": "lstat"},
}
_CLASS = {
    **dict.fromkeys(("open", "fopen", "fdopen", "freopen", "file_open"), OPEN),
    # Like a file, a mapping ends without a call where its process exits.
    **dict.fromkeys(("close", "fclose", "file_close", "munmap"), CLOSE),
    **dict.fromkeys(("read", "pread", "readv", "preadv", "preadv2", "fread", "fgets", "getline", "file_read"), READ),
    # The file that is read; what is written to the other has a row of its own, "write".
    **dict.fromkeys(("sendfile", "copy_file_range", "splice"), READ),
    **dict.fromkeys(
        ("write", "pwrite", "writev", "pwritev", "pwritev2", "fwrite", "fputs", "fprintf", "file_write"), WRITE
    ),
    **dict.fromkeys(("lseek", "fseek", "fseeko", "rewind", "seek"), SEEK),
    **dict.fromkeys(("mmap", "mremap"), MAP),
    **dict.fromkeys(("fsync", "fdatasync", "msync", "sync_file_range", "syncfs", "fflush"), SYNC),
}


def normal_name(call: str) -> str:
    """Recorded name of a call: ``pread64`` gives ``pread``, ``openat`` gives ``open``."""
    name = call.removesuffix("64")
    return _ALIASES.get(name, name)


def printable(name: str) -> str:
    r"""A name as printable text: bytes of a path that are not UTF-8 are written as ``\xff``.

    Control characters are written likewise: such a name must not command a terminal.
    pandas cannot hash the lone surrogates that stand for bytes in Python's own file names.
    """
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = name.encode("utf-8", "backslashreplace")
    return harmless(raw.decode("utf-8", "backslashreplace"))


def class_of(op: str) -> str:
    """Class of a call by its recorded name; ``meta`` for names in no other class."""
    return _CLASS.get(op, META)


def class_codes(frame: pd.DataFrame) -> npt.NDArray[np.int8]:
    """Index into :data:`CLASSES` for the call in each row.

    Rows of the layer ``app`` get a value, too; select by layer first.
    """
    by_op = np.array([CLASSES.index(class_of(str(op))) for op in frame["op"].cat.categories], dtype=np.int8)
    codes: npt.NDArray[np.int8] = by_op[frame["op"].cat.codes.to_numpy()] if len(frame) else np.zeros(0, np.int8)
    return codes
