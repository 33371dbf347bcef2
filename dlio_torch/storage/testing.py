"""Contract test suite for storages, which ships with the package.

A storage's own tests subclass :class:`StorageContract` and make one; pytest then runs every check::

    class TestMyStorage(StorageContract):
        def storage(self, tmp_path: Path) -> Storage:
            return MyStorage("mine://bucket/prefix")

Nothing here imports pytest; the checks raise AssertionError with a line that says what was broken.
"""

from __future__ import annotations

import io
import mmap
import pickle
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dlio_torch.storage.base import Storage

CONTENT = bytes(range(256)) * 40
_PUTS = 40  # while another thread reads
_WRITERS = 8  # threads that put files at once
_LARGE = 1 << 20  # bytes of a file that is not written by one call of a careless storage


class StorageContract:
    """Checks of the contract of :class:`~dlio_torch.storage.base.Storage`."""

    def storage(self, tmp_path: Path) -> Storage:
        """Creates an empty storage; local files that the tests put into it lie in ``tmp_path``."""
        raise NotImplementedError(f"{type(self).__name__} must define storage()")

    # --- writing ---

    def test_put_writes_and_replaces_a_whole_file(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        for durable in (False, True):
            for content in (CONTENT, b"shorter", b""):
                storage.put("deep/folder/file", content, durable=durable)
                assert read(storage, "deep/folder/file") == content
                assert files(storage) == ["deep/folder/file"], "put() leaves other files"

    def test_readers_never_see_a_part(self, tmp_path: Path) -> None:
        storage, done = self.storage(tmp_path), threading.Event()
        storage.put("file", bytes(_LARGE), durable=False)

        def write() -> None:
            try:
                for number in range(_PUTS):
                    storage.put("file", bytes([number % 251]) * _LARGE, durable=False)
            finally:
                done.set()

        with ThreadPoolExecutor(1) as writers:
            written = writers.submit(write)
            while not done.is_set():
                content = read(storage, "file")
                assert len(content) == _LARGE, f"a reader saw only {len(content)} of {_LARGE} bytes"
                assert content.count(content[:1]) == _LARGE, "a reader saw bytes of two files"
            written.result()

    def test_a_put_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        assert raises(TypeError, lambda: storage.put("file", None, durable=False))  # type: ignore[arg-type]
        assert read(storage, "file") == CONTENT, "put() that fails changes the file"
        assert files(storage) == ["file"], "put() that fails leaves another file"

    def test_threads_put_different_names_at_once(self, tmp_path: Path) -> None:
        storage, start = self.storage(tmp_path), threading.Barrier(_WRITERS)

        def write(number: int) -> None:
            start.wait()
            for name in (f"new/folder/{number}", f"new/{number}/file"):
                storage.put(name, CONTENT[number:], durable=False)

        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(write, range(_WRITERS)))
        names = [f"new/folder/{number}" for number in range(_WRITERS)]
        names += [f"new/{number}/file" for number in range(_WRITERS)]
        assert files(storage) == sorted(names), "put() loses files of other threads, or leaves other files"
        for number in range(_WRITERS):
            for name in (f"new/folder/{number}", f"new/{number}/file"):
                alike = read(storage, name) == CONTENT[number:]  # pytest would compare a megabyte line by line
                assert alike, f"put() mixes {name} with files of other threads"

    def test_put_file_moves_a_file(self, tmp_path: Path) -> None:
        storage, source = self.storage(tmp_path), tmp_path / ".source"
        storage.make_folder("folder")
        for durable, content in ((False, b"first"), (True, CONTENT)):
            source.write_bytes(content)
            storage.put_file("folder/file", source, durable=durable)
            assert read(storage, "folder/file") == content
            assert not source.exists(), "put_file() leaves its source"
        storage.sync_folder("folder")
        assert files(storage) == ["folder/file"]

    def test_put_file_moves_what_a_library_writes_as_a_folder(self, tmp_path: Path) -> None:
        storage, source = self.storage(tmp_path), tmp_path / ".source"
        storage.make_folder()
        for name in ("one", "two"):
            (source / "inner").mkdir(parents=True)
            (source / "inner" / name).write_bytes(name.encode())
            storage.put_file("data.bp", source, durable=name == "two")
            assert files(storage) == [f"data.bp/inner/{name}"], "put_file() mixes the new folder with the old one"
            assert not source.exists(), "put_file() leaves its source"
        assert read(storage, "data.bp/inner/two") == b"two"

    def test_a_put_file_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        for durable in (False, True):
            missing = tmp_path / ".missing"
            assert raises(OSError, lambda: storage.put_file("file", missing, durable=durable)), (  # noqa: B023
                "put_file() of a missing file is no error"
            )
            assert read(storage, "file") == CONTENT, "put_file() that fails changes the file"
            assert files(storage) == ["file"], "put_file() that fails leaves another file"

    def test_delete(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        for name in ("file", "folder/one", "folder/deep/two", "folder-3"):
            storage.put(name, CONTENT, durable=False)
        storage.delete("file")
        storage.delete("folder")
        storage.delete("missing")
        assert files(storage) == ["folder-3"], "delete() deletes more or less than the given name"
        assert storage.size("file") is None

    def test_make_folder(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.make_folder()
        for _ in range(2):
            storage.make_folder("deep/folder")
        storage.sync_folder()
        assert files(storage) == []
        if storage.capabilities.folders:
            assert sorted(entry.name for entry in storage.list()) == ["deep", "deep/folder"]

    # --- listing ---

    def test_list_names_every_entry(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        assert list(storage.list()) == []
        assert list(storage.list("missing")) == []
        names = ["a", "folder/b", "folder/deep/ü ?*", "folder-2/c"]
        for number, name in enumerate(names):
            storage.put(name, CONTENT[:number], durable=False)
        assert files(storage) == sorted(names)
        assert files(storage, "folder") == names[1:3], "list(folder) lists entries outside of the folder"
        assert files(storage, "folder/deep") == names[2:3]
        for entry in storage.list():
            assert entry.kind in ("file", "folder")
            if entry.size is not None:
                assert entry.size == names.index(entry.name), f"list() reports a wrong size of {entry.name}"
        if storage.capabilities.folders:
            folders = sorted(entry.name for entry in storage.list() if entry.kind == "folder")
            assert folders == ["folder", "folder-2", "folder/deep"]

    def test_size(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("folder/one", CONTENT, durable=False)
        storage.put("folder/deep/two", b"12", durable=False)
        storage.put("empty", b"", durable=False)
        assert storage.size("folder/one") == len(CONTENT)
        assert storage.size("folder") == len(CONTENT) + 2
        assert storage.size("empty") == 0
        for missing in ("missing", "folder/missing", "folder/one/missing"):
            assert storage.size(missing) is None, f"size() of a missing file is {storage.size(missing)} instead of None"

    # --- reading ---

    def test_open_reads_and_seeks(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("folder/file", CONTENT, durable=False)
        for size in (None, len(CONTENT)):
            with storage.open("folder/file", size) as file:
                assert file.read(100) == CONTENT[:100]
                assert file.seek(-50, io.SEEK_END) == len(CONTENT) - 50
                assert file.read() == CONTENT[-50:]
                assert file.read(1) == b""
        assert raises(FileNotFoundError, lambda: storage.open("folder/missing").read(1))

    def test_ranges_fill_the_memory_that_is_given(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        wanted = [(900, 100), (0, 1), (950, 100), (len(CONTENT) - 7, 7), (5, 0), (0, len(CONTENT))]
        for size in (None, len(CONTENT)):
            memory = bytearray(sum(length for _, length in wanted) + 16)
            places, first = [], 8
            for offset, length in wanted:
                places.append((offset, memoryview(memory)[first : first + length]))
                first += length
            with storage.ranges("file", size) as reader:
                reader.read(places)
                reader.read([])
            for offset, place in places:
                assert place == CONTENT[offset : offset + len(place)], (
                    f"the bytes from {offset} on differ from the file's content"
                )
            assert memory[:8] == memory[-8:] == bytes(8), "ranges are written beyond their memory"

    def test_ranges_are_read_by_threads_at_once(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)

        def part(number: int) -> bytes:
            memory = bytearray(64)
            reader.read([(number * 64, memoryview(memory))])
            return bytes(memory)

        with storage.ranges("file") as reader, ThreadPoolExecutor(8) as threads:
            assert b"".join(threads.map(part, range(len(CONTENT) // 64))) == CONTENT

    def test_a_range_beyond_the_end_is_an_error(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        for offset in (len(CONTENT) - 3, len(CONTENT), len(CONTENT) + 100):
            with storage.ranges("file") as reader:
                late = [(offset, memoryview(bytearray(4)))]
                assert raises(EOFError, lambda: reader.read(late)), (  # noqa: B023
                    f"reading 4 bytes from {offset} on, beyond the end of the file, does not fail"
                )

        def read_missing() -> None:
            with storage.ranges("missing") as reader:
                reader.read([(0, memoryview(bytearray(1)))])

        assert raises(FileNotFoundError, read_missing)

    # --- the rest ---

    def test_names_do_not_lead_out_of_the_root(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        for name in ("../file", "folder/../../file", "/file", "folder//file", "./file", ""):
            calls: Iterable[Callable[[], object]] = (
                lambda: storage.put(name, b"", durable=False),  # noqa: B023
                lambda: storage.size(name),  # noqa: B023
                lambda: storage.open(name),  # noqa: B023
                lambda: storage.delete(name),  # noqa: B023
            )
            for call in calls:
                assert raises(ValueError, call), f"{name!r} is accepted as a name"

    def test_it_can_be_sent_to_other_processes(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        copy: Storage = pickle.loads(pickle.dumps(storage))
        assert (copy.root, copy.capabilities) == (storage.root, storage.capabilities)
        assert read(copy, "file") == CONTENT

    def test_it_can_do_what_it_says(self, tmp_path: Path) -> None:
        storage = self.storage(tmp_path)
        storage.put("file", CONTENT, durable=False)
        can = storage.capabilities
        if not can.paths:
            assert raises(io.UnsupportedOperation, lambda: storage.path("file"))
            assert not any((can.maps, can.direct_io, can.page_cache)), (
                "the storage declares a capability that needs files with paths"
            )
            return
        assert storage.path("file").read_bytes() == CONTENT
        assert storage.path("file") == storage.path() / "file", "files do not lie below the path of the root"
        assert not storage.path("folder/missing").exists()
        if can.maps:
            with (
                storage.path("file").open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            ):
                assert mapped[:] == CONTENT


def files(storage: Storage, folder: str = "") -> list[str]:
    """Names of the files below a folder, sorted."""
    return sorted(entry.name for entry in storage.list(folder) if entry.kind == "file")


def read(storage: Storage, name: str) -> bytes:
    """Content of a file."""
    with storage.open(name) as file:
        return file.read()


def raises(kind: type[Exception], call: Callable[[], object]) -> bool:
    """Whether a call raises an error of a kind."""
    with suppress(kind):
        call()
        return False
    return True
