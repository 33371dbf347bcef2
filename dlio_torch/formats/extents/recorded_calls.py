"""Turns the recorded calls of samples into requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.formats.core.recorded_samples import RecordedSamples
from dlio_torch.formats.extents.requests import PAGE, Ints, RequestCall, Requests
from dlio_torch.formats.extents.requests_file import write_requests

_CALLS = {
    **dict.fromkeys(("open", "fopen", "fdopen", "file_open"), RequestCall.OPEN),
    **dict.fromkeys(("close", "fclose", "file_close"), RequestCall.CLOSE),
    **dict.fromkeys(("lseek", "fseek", "fseeko", "seek", "rewind"), RequestCall.SEEK),
    **dict.fromkeys(("read", "fread", "fgets", "getline", "file_read", "sendfile", "splice"), RequestCall.READ),
    "pread": RequestCall.PREAD,
    "readv": RequestCall.READV,
    **dict.fromkeys(("preadv", "preadv2"), RequestCall.PREADV),
    **dict.fromkeys(("fstat", "fstatat"), RequestCall.FSTAT),
    **dict.fromkeys(("stat", "lstat", "newfstatat", "statx"), RequestCall.STAT),
    "mmap": RequestCall.MMAP,
    "munmap": RequestCall.MUNMAP,
}
_SIZED = (
    RequestCall.READ,
    RequestCall.PREAD,
    RequestCall.READV,
    RequestCall.PREADV,
    RequestCall.MMAP,
    RequestCall.MUNMAP,
)
_PLACED = (*_SIZED, RequestCall.SEEK)


def write_recorded_calls(samples: RecordedSamples, path: Path) -> None:
    """Writes the requests of recorded samples.

    Raises:
        DataError: the calls do not fit the sizes of the files.
        OSError: the file cannot be written.
    """
    write_requests(path, requests_of_calls(samples))


def requests_of_calls(recorded: RecordedSamples) -> Requests:
    """The requests of recorded samples; calls that no request stands for are left out."""
    table, is_request = _table(recorded.calls, list(recorded.file_bytes), np.array([*recorded.file_bytes.values()]))
    opening = [recorded.opening.get(name, np.zeros(0, np.int64)) for name in recorded.file_bytes]
    groups = [recorded.start, *opening, *recorded.samples]
    kept = [np.asarray(rows, np.int64)[is_request[rows]] for rows in groups]
    ends = np.concatenate([[0], np.cumsum([len(rows) for rows in kept])]).astype(np.int64)
    call, file, offset, size = table[:, np.concatenate(kept)]
    files = len(recorded.file_bytes)
    return Requests(
        file_bytes=np.array([*recorded.file_bytes.values()], np.int64),
        sample_first=ends[1 + files :],
        request_call=call.astype(np.uint8),
        request_file=file.astype(np.int32),
        request_offset=offset,
        request_bytes=size,
        start_first=ends[:2],
        file_first=ends[1 : 2 + files],
    )


def _table(calls: pd.DataFrame, names: list[str], sizes: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Call, file, offset and bytes of each row, ``(4, rows)``; and whether a request stands for it."""
    call = np.array([_CALLS.get(str(name), -1) for name in calls["op"]], np.int64)
    file = pd.Index(names).get_indexer(pd.Index(calls["file"].astype(str)))
    limit = sizes[np.maximum(file, 0)]
    offset = np.where(np.isin(call, _PLACED), np.maximum(calls["offset"].to_numpy(), 0), 0)
    size = np.where(np.isin(call, _SIZED), np.maximum(calls["bytes"].to_numpy(), 0), 0)
    maps = (call == RequestCall.MMAP) | (call == RequestCall.MUNMAP)
    offset = np.where(maps, offset // PAGE * PAGE, offset)
    size = np.where(maps, np.minimum(size, limit - offset), size)  # a map may reach to the end of a page
    is_request = (call >= 0) & (file >= 0) & ~((call == RequestCall.MMAP) & (size <= 0))
    return np.stack([call, file, offset, np.maximum(size, 0)]).astype(np.int64), is_request
