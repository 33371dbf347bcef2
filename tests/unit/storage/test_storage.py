"""Storages keep the contract, the contract finds those that do not, and URLs without a storage are refused."""

from __future__ import annotations

import io
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

from dlio_torch import cli
from dlio_torch.errors import ConfigError
from dlio_torch.storage.base import ByteRange, Capabilities, Entry, RangeReader, Storage, check_name
from dlio_torch.storage.local.storage import LocalStorage
from dlio_torch.storage.registry import open_storage, scheme_of
from dlio_torch.storage.testing import StorageContract


class TestLocalStorage(StorageContract):
    def storage(self, tmp_path: Path) -> Storage:
        return open_storage(tmp_path / "root")

    def test_the_root_may_be_relative(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for root in (".", "./", "root", "root/"):
            storage = open_storage(root)
            storage.put("folder/file", b"", durable=True)
            assert [entry.name for entry in storage.list("folder")] == ["folder/file"]
            assert [entry.name for entry in storage.list()] == ["folder", "folder/file"]
            storage.delete("folder")

    def test_links_and_what_is_no_file_are_listed_and_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").touch()
        (tmp_path / "link-to-file").symlink_to("folder/file")
        (tmp_path / "link-to-folder").symlink_to("folder")
        (tmp_path / "link-to-nothing").symlink_to("missing")
        os.mkfifo(tmp_path / "pipe")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(tmp_path / "socket"))
        found = {entry.name: entry.kind for entry in open_storage(tmp_path).list()}
        assert found == {
            "folder": "folder",
            "folder/file": "file",
            "link-to-file": "file",
            "link-to-folder": "folder",
            "link-to-nothing": "other",
            "pipe": "other",
            "socket": "other",
        }

    def test_a_durable_put_flushes_the_content_before_the_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[tuple[str, bool]] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
            flushed.append((name, (tmp_path / "file").exists()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        storage = open_storage(tmp_path)
        storage.put("file", b"1", durable=True)
        assert flushed == [(f".file.{os.getpid()}.part", False), (tmp_path.name, True)]
        storage.put("file", b"2", durable=False)
        assert len(flushed) == 2


class MemoryStorage(Storage):
    """Objects by name, as a bucket has them: no paths, no folders, sizes in the listing."""

    capabilities = Capabilities()
    buckets: ClassVar[dict[str, dict[str, bytes]]] = {}

    @property
    def objects(self) -> dict[str, bytes]:
        return self.buckets.setdefault(self.root, {})

    def list(self, folder: str = "") -> Iterator[Entry]:
        prefix = f"{folder}/" if folder else ""
        for name, content in sorted(self.objects.items()):
            if name.startswith(prefix):
                yield Entry(name, "file", len(content))

    def size(self, name: str) -> int | None:
        if check_name(name) in self.objects:
            return len(self.objects[name])
        sizes = [entry.size or 0 for entry in self.list(name)]
        return sum(sizes) if sizes else None

    def path(self, name: str) -> Path:
        raise io.UnsupportedOperation(f"{self.root} has no file paths")

    def _content(self, name: str) -> bytes:
        try:
            return self.objects[check_name(name)]
        except KeyError:
            raise FileNotFoundError(name) from None

    def open(self, name: str, size: int | None = None) -> BinaryIO:
        return io.BytesIO(self._content(name))

    def ranges(self, name: str, size: int | None = None) -> RangeReader:
        return MemoryRanges(self._content(name))

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        self.objects[check_name(name)] = bytes(memoryview(content))

    def put_file(self, name: str, source: Path, *, durable: bool) -> None:
        paths = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
        contents = {path.relative_to(source).as_posix(): path.read_bytes() for path in paths}
        self.delete(name)
        for rest, content in contents.items():
            self.put(name if rest == "." else f"{name}/{rest}", content, durable=durable)
        source.rename(source.with_name(f"{source.name}.gone.{os.urandom(4).hex()}"))

    def sync_folder(self, folder: str = "") -> None:
        pass

    def delete(self, name: str) -> None:
        check_name(name)
        for other in [entry.name for entry in self.list(name)]:
            del self.objects[other]
        self.objects.pop(name, None)

    def make_folder(self, folder: str = "") -> None:
        pass


class MemoryRanges(RangeReader):
    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, ranges: Sequence[ByteRange]) -> None:
        for offset, memory in ranges:
            part = self.content[offset : offset + len(memory)]
            if len(part) < len(memory):
                raise EOFError(f"it ends at {len(self.content)}")
            memory[:] = part

    def close(self) -> None:
        pass


class TestStorageWithoutPaths(StorageContract):
    """The contract asks nothing that only a file system has."""

    def storage(self, tmp_path: Path) -> Storage:
        return MemoryStorage(f"memory://{tmp_path}")


class Careless(LocalStorage):
    """Writes in place, and gives fewer bytes than were asked for."""

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as file:
            view = memoryview(content)
            for first in range(0, len(view), 4096):
                file.write(view[first : first + 4096])

    def put_file(self, name: str, source: Path, *, durable: bool) -> None:
        self.delete(name)
        super().put_file(name, source, durable=durable)

    def list(self, folder: str = "") -> Iterator[Entry]:
        return (entry for entry in super().list() if entry.name.startswith(folder))

    def size(self, name: str) -> int | None:
        return super().size(name) or None

    def ranges(self, name: str, size: int | None = None) -> RangeReader:
        with super().open(name) as file:
            return ShortRanges(file.read())

    def path(self, name: str) -> Path:
        return Path(self.root, name)

    def delete(self, name: str) -> None:
        self.path(name).unlink()

    def __reduce__(self) -> Any:
        return Careless, ("elsewhere",)


class ShortRanges(MemoryRanges):
    def read(self, ranges: Sequence[ByteRange]) -> None:
        for offset, memory in ranges:
            part = self.content[offset : offset + len(memory)]
            memory[: len(part)] = part


class CarelessContract(StorageContract):
    def storage(self, tmp_path: Path) -> Storage:
        return Careless(str(tmp_path / "root"))


@pytest.mark.parametrize(
    "check",
    [
        CarelessContract.test_readers_never_see_a_part,
        CarelessContract.test_a_put_that_fails_changes_nothing,
        CarelessContract.test_a_put_file_that_fails_changes_nothing,
        CarelessContract.test_list_names_every_entry,
        CarelessContract.test_size,
        CarelessContract.test_a_range_beyond_the_end_is_an_error,
        CarelessContract.test_names_do_not_lead_out_of_the_root,
        CarelessContract.test_delete,
        CarelessContract.test_it_can_be_sent_to_other_processes,
    ],
)
def test_the_contract_finds_a_storage_that_is_careless(check: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, OSError)):
        check(CarelessContract(), tmp_path)


class OneBuffer(LocalStorage):
    """All threads write from one buffer."""

    def put(self, name: str, content: bytes, *, durable: bool) -> None:
        self.buffer = content
        time.sleep(0.01)
        super().put(name, self.buffer, durable=durable)


class OneBufferContract(StorageContract):
    def storage(self, tmp_path: Path) -> Storage:
        return OneBuffer(str(tmp_path / "root"))


def test_the_contract_finds_a_storage_that_mixes_threads(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="mixes new/"):
        OneBufferContract().test_threads_put_different_names_at_once(tmp_path)


@pytest.mark.parametrize(
    ("location", "scheme"),
    [("data", ""), ("/data/x", ""), ("s3:/x", ""), ("a:b//c", ""), ("S3://b/p", "s3"), ("gs://b", "gs"), ("://x", "")],
)
def test_the_scheme_of_a_location(location: str, scheme: str) -> None:
    assert scheme_of(location) == scheme


def test_a_storage_is_opened_by_its_scheme(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    assert isinstance(storage, LocalStorage)
    assert isinstance(pickle.loads(pickle.dumps(storage)), LocalStorage)
    with pytest.raises(ConfigError, match="s3://bucket/x: no storage supports s3:// URLs"):
        open_storage("s3://bucket/x")


KEYS = ("dataset.root", "dataset.path", "output.root", "output.dir", "stage.dir", "train.resume", "checkpoint.root")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("verb", ["run", "generate", "clean", "doctor"])
def test_a_url_without_a_storage_is_refused(
    key: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([verb, "recipe=minimal", f"{key}=s3://bucket/x", *(["--yes"] if verb == "clean" else [])]) == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if not one.startswith("scale: "))
    assert line == (
        f"dlio_torch: error: {key}=s3://bucket/x (command line): no storage supports s3:// URLs; "
        "supported are paths (no scheme); use a local path; mount the bucket first"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_a_local_file_says_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "recipe=minimal", "dataset.root=file:///scratch/data"]) == 2
    assert (
        capsys.readouterr()
        .err.rstrip()
        .endswith("no storage supports file:// URLs; supported are paths (no scheme); write /scratch/data")
    )
