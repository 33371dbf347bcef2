"""Plan of a generated folder: which recorded samples it holds, their requests, and the bytes of its files.

Sample ``s`` of the data set is recorded sample ``s % n`` in copy ``s // n`` of the recording.  Each copy has files of
its own.  Of a copy that is not complete, whole samples are left out, with the files that only they use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.extents.regions import Pieces, Regions
from dlio_torch.formats.extents.requests import PAGE, Ints, RequestCall, Requests

EVALUATION = 1 << 40
"""Number from which on samples belong to evaluations; their copies have other content."""

_IN_FOLDER = 1000  # files of a subfolder


def file_path(number: int) -> str:
    """Path of a file in its folder."""
    return f"files/{number // _IN_FOLDER:03d}/{number:06d}"


def copy_of(sample: int, recorded: int) -> tuple[int, int]:
    """Copy of the recording that a sample of the data set belongs to, and its number in the recording.

    Args:
        sample: number in the data set.
        recorded: number of recorded samples.
    """
    begin = EVALUATION if sample >= EVALUATION else 0
    copy, row = divmod(sample - begin, recorded)
    return begin + copy, row


@dataclass(frozen=True)
class CopyPart:
    """Consecutive samples of one copy of the recording.

    Attributes:
        copy: number of the copy.
        first_file: number of its first file in the folder.
        files: recorded numbers of its files.
        pieces: bytes of these files.
    """

    copy: int
    first_file: int
    files: Ints
    pieces: Pieces


@dataclass(frozen=True)
class FolderPlan:
    """Plan of a folder.

    Attributes:
        requests: with the numbers, sizes and offsets of the files of the folder.
        parts: copies of the recording in it.
    """

    requests: Requests
    parts: tuple[CopyPart, ...]

    @property
    def file_bytes(self) -> int:
        """Bytes of all files."""
        return int(self.requests.file_bytes.sum())


@dataclass(frozen=True)
class _Selection:
    """Requests of consecutive samples, with numbers of files that count the kept ones alone."""

    files: Ints
    sizes: Ints
    pieces: Pieces
    table: npt.NDArray[np.int64]
    start: Ints
    opening: Ints
    opening_counts: Ints
    samples: Ints
    sample_counts: Ints


def plan_folder(recorded: Requests, first: int, count: int) -> FolderPlan:
    """Plans the folder of the samples ``first`` to ``first + count - 1`` of the data set."""
    whole: dict[tuple[int, int], _Selection] = {}
    parts: list[CopyPart] = []
    chosen: list[_Selection] = []
    files = 0
    for copy, low, high in _shares(recorded.num_samples, first, count):
        selection = whole.get((low, high)) or whole.setdefault((low, high), _selection(recorded, low, high))
        parts.append(CopyPart(copy, files, selection.files, selection.pieces))
        chosen.append(selection)
        files += len(selection.files)
    return FolderPlan(_joined(chosen, parts), tuple(parts))


def _shares(recorded: int, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Yields each copy with its first sample and the one behind its last."""
    while count:
        copy, low = copy_of(first, recorded)
        high = min(recorded, low + count)
        yield copy, low, high
        first, count = first + high - low, count - (high - low)


def _whole(recorded: Requests) -> _Selection:
    """All requests, which stay as they are."""
    files = np.arange(len(recorded.file_bytes))
    some = np.flatnonzero(recorded.file_bytes)
    pieces = Pieces(some, np.zeros(len(some), np.int64), recorded.file_bytes[some])
    columns = recorded.request_call, recorded.request_file, recorded.request_offset, recorded.request_bytes
    return _Selection(
        files, recorded.file_bytes, pieces, np.stack(columns, dtype=np.int64), np.arange(*recorded.start_first),
        np.arange(recorded.file_first[0], recorded.file_first[-1]), np.diff(recorded.file_first),
        np.arange(recorded.sample_first[0], recorded.sample_first[-1]), np.diff(recorded.sample_first),
    )  # fmt: skip


def _selection(recorded: Requests, low: int, high: int) -> _Selection:
    if high - low == recorded.num_samples:
        return _whole(recorded)
    samples = np.arange(recorded.sample_first[low], recorded.sample_first[high])
    opening = np.arange(recorded.file_first[0], recorded.file_first[-1])
    owner = np.repeat(np.arange(len(recorded.file_bytes)), np.diff(recorded.file_first))
    start = np.arange(*recorded.start_first)
    files = _kept_files(recorded, samples)
    start = start[files[recorded.request_file[start]]]
    of_kept = files[owner] & files[recorded.request_file[opening]]
    opening, owner = opening[of_kept], owner[of_kept]
    kept = np.zeros(len(recorded.request_call), np.bool_)
    kept[np.concatenate([samples, opening, start])] = True
    regions = Regions(recorded, kept)
    numbers = np.flatnonzero(files)
    return _Selection(
        numbers, regions.sizes()[numbers], regions.pieces(files), _moved_table(recorded, regions, files),
        start, opening, np.bincount(owner, minlength=len(files))[numbers],
        samples, np.diff(recorded.sample_first[low : high + 1]),
    )  # fmt: skip


def _kept_files(recorded: Requests, samples: Ints) -> npt.NDArray[np.bool_]:
    """Whether each file is used by one of these samples, or by none at all but before them."""
    files = np.zeros((2, len(recorded.file_bytes)), np.bool_)
    files[0, recorded.request_file[samples]] = True
    files[1, recorded.request_file[recorded.sample_first[0] : recorded.sample_first[-1]]] = True
    kept: npt.NDArray[np.bool_] = files[0] | ~files[1]
    return kept


def _moved_table(recorded: Requests, regions: Regions, files: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Call, file, offset and bytes of each recorded request in the smaller files; ``(4, requests)``."""
    file, call = recorded.request_file, recorded.request_call
    offset = regions.offsets()
    size = recorded.request_bytes.copy()
    maps = (call == RequestCall.MMAP) | (call == RequestCall.MUNMAP)
    end = regions.offsets_of(file[maps], recorded.request_offset[maps] + size[maps])
    offset[maps] = offset[maps] // PAGE * PAGE
    size[maps] = end - offset[maps]
    return np.stack([call, np.cumsum(files)[file] - 1, offset, size]).astype(np.int64)


def _joined(chosen: list[_Selection], parts: list[CopyPart]) -> Requests:
    """The requests of a folder: those of its start, those of opening files, those of samples."""
    pairs = list(zip(chosen, parts, strict=True))
    groups = [
        [_of_folder(selection.table[:, getattr(selection, name)], part) for selection, part in pairs]
        for name in ("start", "opening", "samples")
    ]
    call, file, offset, size = np.concatenate([table for tables in groups for table in tables], axis=1)
    started, opened = (sum(table.shape[1] for table in tables) for tables in groups[:2])
    return Requests(
        file_bytes=np.concatenate([selection.sizes for selection in chosen]),
        sample_first=_firsts(started + opened, [selection.sample_counts for selection in chosen]),
        request_call=call.astype(np.uint8),
        request_file=file.astype(np.int32),
        request_offset=offset,
        request_bytes=size,
        start_first=np.array([0, started], np.int64),
        file_first=_firsts(started, [selection.opening_counts for selection in chosen]),
    )


def _of_folder(table: npt.NDArray[np.int64], part: CopyPart) -> npt.NDArray[np.int64]:
    moved: npt.NDArray[np.int64] = table + np.array([[0], [part.first_file], [0], [0]])
    return moved


def _firsts(begin: int, counts: list[Ints]) -> Ints:
    firsts: Ints = begin + np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return firsts


def folder_files(folder: Path, requests: Requests) -> list[Path]:
    """Paths of all files of a folder."""
    return [folder / file_path(number) for number in range(len(requests.file_bytes))]
