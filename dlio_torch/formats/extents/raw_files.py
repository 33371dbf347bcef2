"""Writes the raw files of a planned folder, whose content threads generate ahead of the writes.

Blocks of a file that no request reads are left as holes: a recording of some batches out of a large file takes the
space of these batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.extents.content import Bytes, file_content
from dlio_torch.formats.extents.folder_plan import FolderPlan, folder_files
from dlio_torch.formats.extents.requests import RequestCall, Requests

_BLOCK_BYTES = 1 << 20
_AHEAD = 16  # blocks in memory


@dataclass(frozen=True)
class _Block:
    """Bytes that one thread generates.

    Attributes:
        target: number of the file in the folder.
        position: first byte in this file.
        copy: number of the copy of the recording.
        file: number of the recorded file.
        offset: first byte there.
        size: bytes.
    """

    target: int
    position: int
    copy: int
    file: int
    offset: int
    size: int


def write_raw_files(folder: Path, plan: FolderPlan, seed: int, pool: Executor) -> None:
    """Writes all files of a folder.

    Args:
        folder: an existing folder.
        plan: of the folder.
        seed: of the data set.
        pool: threads that generate content.
    """
    paths = folder_files(folder, plan.requests)
    for parent in dict.fromkeys(path.parent for path in paths):
        parent.mkdir(parents=True, exist_ok=True)

    def generated(block: _Block) -> tuple[_Block, Bytes]:
        return block, file_content(seed, block.copy, block.file, block.offset, block.size)

    _write_in_order(paths, in_order(pool, generated, _blocks(plan), _AHEAD))
    for path, size in zip(paths, plan.requests.file_bytes.tolist(), strict=True):
        with path.open("ab") as file:
            file.truncate(size)


def _write_in_order(paths: list[Path], blocks: Iterator[tuple[_Block, Bytes]]) -> None:
    """Writes blocks that come in the order of files and offsets; each file is open while its blocks come."""
    present = -1
    opened = None
    try:
        for block, content in blocks:
            if opened is None or block.target != present:
                if opened is not None:
                    opened.close()
                opened, present = paths[block.target].open("wb"), block.target
            opened.seek(block.position)
            opened.write(content.data)
    finally:
        if opened is not None:
            opened.close()


def written_bytes(requests: Requests) -> int:
    """Bytes of the blocks that are written, at most."""
    return int(min(np.count_nonzero(_used_blocks(requests)) * _BLOCK_BYTES, requests.file_bytes.sum()))


def _used_blocks(requests: Requests) -> npt.NDArray[np.bool_]:
    """Whether a request reads or maps bytes of each block; the blocks of all files, one file after another."""
    first = _first_blocks(requests)
    chosen = requests.reads | (requests.request_call == RequestCall.MMAP)
    chosen &= requests.request_bytes > 0
    begin = first[requests.request_file[chosen]] + requests.request_offset[chosen] // _BLOCK_BYTES
    last = requests.request_offset[chosen] + requests.request_bytes[chosen] - 1
    end = first[requests.request_file[chosen]] + last // _BLOCK_BYTES + 1
    count = int(first[-1]) + 1
    used: npt.NDArray[np.bool_] = np.cumsum(np.bincount(begin, minlength=count) - np.bincount(end, minlength=count)) > 0
    return used


def _first_blocks(requests: Requests) -> npt.NDArray[np.int64]:
    """Number of the first block of each file, and of the one behind the last."""
    return np.concatenate([[0], np.cumsum(-(-requests.file_bytes // _BLOCK_BYTES))]).astype(np.int64)


def _blocks(plan: FolderPlan) -> Iterator[_Block]:
    """Blocks of the files that are used; a piece is cut at the blocks of its file."""
    used, first = _used_blocks(plan.requests), _first_blocks(plan.requests)
    for part in plan.parts:
        targets = {file: part.first_file + number for number, file in enumerate(part.files.tolist())}
        pieces = part.pieces
        position, present = 0, -1
        for file, offset, size in zip(pieces.file.tolist(), pieces.offset.tolist(), pieces.size.tolist(), strict=True):
            position, present = (position if file == present else 0), file
            target, end = targets[file], position + size
            numbers = np.arange(position // _BLOCK_BYTES, -(-end // _BLOCK_BYTES))
            for number in numbers[used[first[target] + numbers]].tolist():
                low, high = max(position, number * _BLOCK_BYTES), min(end, (number + 1) * _BLOCK_BYTES)
                yield _Block(target, low, part.copy, file, offset + low - position, high - low)
            position = end
