"""Atomic files: whole or as before, under the temporary names that ``clean`` knows, readable by whom they should be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dlio_torch.files.atomic_file import part_name, renamed, temporary_name, write_private, written_whole
from dlio_torch.ownership.names import FileNames


class Interrupted(BaseException):
    """As a signal's: no Exception."""


@pytest.mark.parametrize("name", [part_name, temporary_name])
@pytest.mark.parametrize("error", [OSError, Interrupted])
def test_a_body_that_fails_leaves_the_file_as_it_was(
    name: Callable[[Path], Path], error: type[BaseException], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fail() -> None:
        with renamed(name(path), path) as temporary:
            temporary.write_bytes(b"half")
            assert path.read_bytes() == b"before"
            assert FileNames(["file"]).has_file((temporary.name,)), "clean does not know the temporary name"
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]
    with renamed(name(path), path) as temporary:
        temporary.write_bytes(b"after")
    assert path.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)

    def write() -> None:
        with written_whole(tmp_path / "folder") as file:
            file.write(b"content")

    with pytest.raises(IsADirectoryError):
        write()
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "inner"]


def test_a_file_of_data_is_on_the_device_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flushed, real = tmp_path / "file", [], os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size, path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with written_whole(path) as file:
        file.write(b"content")
    assert flushed == [(str(tmp_path / f".file.{os.getpid()}.part"), 7, False)]
    assert path.read_bytes() == b"content"


def test_a_file_of_the_cache_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "storage-0123.json"
    write_private(path, "{}\n")
    assert path.read_text() == "{}\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert os.listdir(path.parent) == [path.name]
