"""Reads at an offset: all bytes, by calls of bounded size, and fewer only at the end of the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlio_torch.formats.core.positioned_reads import read_exactly, read_into

CONTENT = bytes(range(200))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    return path


def test_a_short_answer_is_followed_by_a_request_for_the_rest(path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        asked.append((size, offset))
        return os.pread(descriptor, min(size, 30), offset)

    with path.open("rb") as file:
        assert read_exactly(file.fileno(), 20, 70, pread) == CONTENT[20:90]
        assert asked == [(70, 20), (40, 50), (10, 80)]
        assert read_exactly(file.fileno(), 150, 70) == CONTENT[150:]
        assert read_exactly(file.fileno(), 300, 70) == b""


def test_memory_is_filled_by_calls_of_bounded_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    preadv = os.preadv

    def noted(descriptor: int, parts: list[memoryview], offset: int) -> int:
        asked.append(len(parts[0]))
        return preadv(descriptor, parts, offset)

    monkeypatch.setattr(os, "preadv", noted)
    memory = memoryview(bytearray(70))
    with path.open("rb") as file:
        assert read_into(file.fileno(), 20, memory, 32) == 70
        assert bytes(memory) == CONTENT[20:90]
        assert asked == [32, 32, 6]
        assert read_into(file.fileno(), 150, memory, 64) == 50
        assert bytes(memory[:50]) == CONTENT[150:]
