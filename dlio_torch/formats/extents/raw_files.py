"""Writes the raw files of a planned folder, whose content threads generate ahead of the writes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.extents.content import Bytes, file_content
from dlio_torch.formats.extents.folder_plan import FolderPlan, folder_files

_BLOCK_BYTES = 1 << 20
_AHEAD = 16  # blocks in memory


@dataclass(frozen=True)
class _Block:
    """Bytes that one thread generates.

    Attributes:
        target: number of the file in the folder.
        copy: number of the copy of the recording.
        file: number of the recorded file.
        offset: first byte there.
        size: bytes.
    """

    target: int
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
    for path, size in zip(paths, plan.requests.file_bytes.tolist(), strict=True):
        if not size:
            path.touch()

    def generated(block: _Block) -> tuple[int, Bytes]:
        return block.target, file_content(seed, block.copy, block.file, block.offset, block.size)

    _write_in_order(paths, in_order(pool, generated, _blocks(plan), _AHEAD))


def _write_in_order(paths: list[Path], blocks: Iterator[tuple[int, Bytes]]) -> None:
    """Writes blocks that come in the order of files and offsets; each file is open while its blocks come."""
    present = -1
    opened = None
    try:
        for target, content in blocks:
            if opened is None or target != present:
                if opened is not None:
                    opened.close()
                opened, present = paths[target].open("wb"), target
            opened.write(content.data)
    finally:
        if opened is not None:
            opened.close()


def _blocks(plan: FolderPlan) -> Iterator[_Block]:
    for part in plan.parts:
        targets = {file: part.first_file + number for number, file in enumerate(part.files.tolist())}
        pieces = part.pieces
        for file, offset, size in zip(pieces.file.tolist(), pieces.offset.tolist(), pieces.size.tolist(), strict=True):
            for low in range(0, size, _BLOCK_BYTES):
                yield _Block(targets[file], part.copy, file, offset + low, min(_BLOCK_BYTES, size - low))
