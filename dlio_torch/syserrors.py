"""Errors of the operating system as errors of this program: system's reason, remedy and exit code by one rule.

What a user can put right before the next start is a precondition (exit code 3): no space, a quota, rights, a file
system that is mounted read-only, a folder that has gone, limits of the process.  All else, a device that fails above
all, is a failed run (exit code 1).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource  # here and not where it is used: without a free descriptor it cannot be imported
import sys
from pathlib import Path

from dlio_torch.errors import DataError, DlioError, PreconditionError, RunFailed

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers that mean that no more data can be written."""
BAD_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""Error numbers that mean that the path itself is invalid."""

# What to do where the caller's own advice (another folder) is not all that helps.
_WAYS = {
    errno.ENOSPC: "free space on the file system",
    errno.EDQUOT: "free space on the file system, or have the quota raised",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EACCES: "get the permissions for this path",
    errno.EPERM: "get the permissions for this path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "correct the links of this path",
    errno.EROFS: "have the file system mounted read-write",
    errno.EMFILE: "raise the limit of open files (ulimit -n, {files} here)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
    errno.ENOMEM: "free memory on this machine",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.ENOENT: "another program removed the file: create the file again",
    errno.EEXIST: "move the existing file away",
    errno.ENOTDIR: "another program replaced the folder by a file: create the folder again",
    errno.ESTALE: "the file was removed on the server: create the file again",
}
_PRECONDITIONS = frozenset(_WAYS)
_DEVICE = {errno.EIO: "check the file system (dmesg)", errno.ENOTCONN: "check whether the file system is mounted"}
# Of torch's allocator, C++, the loader of shared libraries, glibc, and Python's threads.
_ALLOCATION = re.compile(
    "(?i)can(no|')t allocate memory|bad_alloc|failed to map segment|not enough memory|cannot allocate|"
    "can't start new thread"
)
_TOLD = re.compile(r"(?i:errno)(?: =|:)? (\d+)")  # by HDF5, ADIOS2 and Arrow, which have it from the system


def errno_of(error: BaseException) -> int | None:
    """Returns the system's error number, also if a library put the number into a text."""
    if isinstance(error, OSError) and error.errno in errno.errorcode:  # netCDF has numbers of its own
        return error.errno
    match = _TOLD.search(str(error))
    return int(match.group(1)) if match and int(match.group(1)) in errno.errorcode else None


def reason(error: BaseException) -> str:
    """Returns the reason: the system's text for the error number, or else the text of the error."""
    number = errno_of(error)
    text = os.strerror(number) if number else str(error).strip() or type(error).__name__
    return " ".join(text.split())


def way_out(error: BaseException, elsewhere: str = "") -> str:
    """Returns the remedy for the error, as a hint.

    Args:
        error: what was raised.
        elsewhere: another remedy, for example an option that names another folder.
    """
    number = errno_of(error)
    way = _WAYS.get(number or 0) or _DEVICE.get(number or 0) or ""
    ways = [way.format(files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]), elsewhere]
    return ", or ".join(way for way in ways if way) or "check the file system"


def _takes_no_names(error: BaseException) -> bool:
    """Whether a file could not be created although its folder exists, as in ``/proc``."""
    path = error.filename if isinstance(error, OSError) and error.errno == errno.ENOENT else None
    if not isinstance(path, str | os.PathLike):
        return False
    return os.path.isdir(os.path.dirname(os.path.abspath(path))) and not os.path.lexists(path)


def refused(problem: str, error: BaseException, *, elsewhere: str = "", kept: str = "") -> DlioError:
    """Returns the error for an operation that the system refused.

    Args:
        problem: the failed operation with its file: ``<file> cannot be written``.
        error: what was raised.
        elsewhere: another remedy (see :func:`way_out`).
        kept: a sentence about results that are not lost.

    Returns:
        :class:`PreconditionError` or :class:`RunFailed`, by the rule above.
    """
    kind = PreconditionError if errno_of(error) in _PRECONDITIONS else RunFailed
    hint = elsewhere if elsewhere and _takes_no_names(error) else way_out(error, elsewhere)
    return kind(f"{problem}: {reason(error)}", hint="; ".join(filter(None, [hint, kept])))


def no_memory(error: BaseException) -> str | None:
    """Returns the line about a lack of memory; ``None`` if the error and its causes are of another kind.

    Python, NumPy, torch, the loader of shared libraries and the start of threads each say it in their own way.
    """
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).strip()
        if isinstance(cause, MemoryError) or errno_of(cause) == errno.ENOMEM or _ALLOCATION.search(text):
            break
        cause = cause.__cause__ or cause.__context__
    else:
        return None
    # Of an error in a loader worker, torch tells the whole traceback, the error at its end.
    detail = f" ({text.splitlines()[-1]})" if text else ""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return f"not enough memory{detail}; use smaller batches or samples, fewer workers, or a smaller scale"
    return (
        f"not enough memory{detail}: the limit of a process is {limit >> 10} KiB (ulimit -v); raise the limit, "
        "or use smaller batches or samples, fewer workers or threads, or a smaller scale"
    )


def unreadable(path: Path | str, error: BaseException) -> DataError:
    """Returns the one-line error for a file that the system cannot read."""
    files = "lower loader.max_open_files" if errno_of(error) in (errno.EMFILE, errno.ENFILE) else ""
    return DataError(f"{path} cannot be read: {reason(error)}", hint=way_out(error, files))


def silence_output() -> None:
    """Discard further output, because the standard output accepts no more data."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(text: str) -> None:
    """Print a warning as one line on the standard error; never raises."""
    say(f"warning: {text}")


def say(text: str) -> None:
    """Print one line on the standard error, with the program's name; never raises."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"dlio_torch: {' '.join(text.split())}\n")
        sys.stderr.flush()


def is_damage(error: BaseException) -> bool:
    """Whether a read error means that the file is damaged, not that the system cannot read it."""
    return errno_of(error) in (None, errno.EINVAL)
