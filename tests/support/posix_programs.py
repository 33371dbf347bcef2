"""Programs whose I/O a recorder should see: ``python posix_programs.py NAME FOLDER``.

Each works in ``FOLDER``, which is empty at the start, and imports only the libraries that it is about.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import io
import mmap
import os
import platform
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path


def plain(folder: Path) -> None:
    """Python's own I/O, threads, copies of descriptors, child processes."""
    text = folder / "text"
    text.write_text("line\n" * 5000)
    with text.open() as lines:
        assert sum(1 for _ in lines) == 5000
    with open(text, "rb", buffering=0) as file:
        file.seek(1000)
        assert file.readinto(bytearray(3000)) == 3000
        file.seek(-10, os.SEEK_END)
        file.read()
    with open(text, "ab") as file:
        file.write(b"at the end")
    with open(text, "r+b") as file:
        file.seek(8192)
        file.write(b"x" * 100)
        file.flush()
        os.fsync(file.fileno())
        file.truncate(20_000)
    for copy in (shutil.copyfile, shutil.copy2):
        copy(text, folder / copy.__name__)
    with gzip.open(folder / "gz", "wb") as packed:
        packed.write(os.urandom(50_000))
    with gzip.open(folder / "gz") as packed:
        assert len(packed.read()) == 50_000
    with zipfile.ZipFile(folder / "zip", "w") as archive:
        archive.writestr("a", bytes(9000))
        archive.writestr("b", os.urandom(9000))
    with zipfile.ZipFile(folder / "zip") as archive:
        assert len(archive.read("b")) == 9000
    _database(folder / "sqlite")
    _descriptors(text, folder)
    _names(folder)
    _threads(text)
    _processes(text)


def _database(path: Path) -> None:
    for _ in range(2):
        base = sqlite3.connect(path)
        with base:
            base.execute("create table if not exists t (x)")
            base.executemany("insert into t values (?)", [(os.urandom(100),) for _ in range(200)])
        base.close()


def _descriptors(path: Path, folder: Path) -> None:
    first = os.open(path, os.O_RDWR)
    second = os.dup(first)
    third = os.dup2(first, 99)
    os.read(first, 10)
    os.read(second, 20)
    os.lseek(third, 5, os.SEEK_CUR)
    os.pread(first, 30, 7)
    os.preadv(first, [bytearray(4), bytearray(5)], 11)
    os.readv(second, [bytearray(6), bytearray(7)])
    os.pwrite(first, b"pwrite", 100)
    os.pwritev(third, [b"ab", b"cd"], 200)
    os.writev(first, [b"e", b"f"])
    os.fdatasync(first)
    with open(folder / "parts", "wb", buffering=0) as target:
        os.sendfile(target.fileno(), first, 50, 60)
        os.copy_file_range(first, target.fileno(), 40)
        os.copy_file_range(first, target.fileno(), 40, 0, 500)
        os.posix_fallocate(target.fileno(), 0, 4096)
    os.close(first)
    os.read(second, 8)
    os.close(second)
    if os.fork() == 0:  # shares the offset with its parent
        os.read(third, 9)
        os._exit(0)
    os.wait()
    os.read(third, 10)
    os.close(third)


def _names(folder: Path) -> None:
    (folder / "sub").mkdir()
    os.chdir(folder / "sub")
    Path("relative").write_bytes(b"12345")
    Path("../sub/./relative").read_bytes()
    directory = os.open(folder, os.O_RDONLY)
    descriptor = os.open("sub/relative", os.O_RDONLY, dir_fd=directory)
    os.close(directory)
    os.rename("relative", "renamed")
    os.read(descriptor, 3)
    os.unlink("renamed")
    os.read(descriptor, 3)
    os.close(descriptor)
    assert not Path("missing").exists()
    with contextlib.suppress(FileNotFoundError):
        Path("missing").read_bytes()


def _threads(path: Path) -> None:
    def read(number: int) -> None:
        with open(path, "rb") as file:
            file.seek(number * 1000)
            for size in range(1, 50):
                file.read1(size * 10)
        shared = os.pread(descriptor, 512, number * 512)
        assert len(shared) == 512

    descriptor = os.open(path, os.O_RDONLY)
    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(descriptor)


def _processes(path: Path) -> None:
    with path.open("rb") as file:
        subprocess.run(["cat"], stdin=file, stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["cp", path, f"{path}-cp"], check=True)
    subprocess.run(["dd", f"if={path}", f"of={path}-dd", "bs=1000", "status=none"], check=True)
    copied = subprocess.run(f"cat < {path} >> {path}-cp", shell=True, check=False)
    assert copied.returncode == 0


def arrays(folder: Path) -> None:
    """h5py and numpy."""
    import h5py
    import numpy as np

    values = np.arange(60_000, dtype=np.float32).reshape(100, 600)
    with h5py.File(folder / "contiguous.h5", "w") as file:
        file["x"] = values
    with h5py.File(folder / "contiguous.h5") as file:
        assert file["x"][7:9].sum() == values[7:9].sum()
    with h5py.File(folder / "chunked.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(10, 600), compression="gzip")
    with h5py.File(folder / "chunked.h5") as file:
        assert file["x"][55].sum() == values[55].sum()
    np.save(folder / "x.npy", values)
    assert np.array_equal(np.load(folder / "x.npy"), values)
    mapped = np.load(folder / "x.npy", mmap_mode="r")
    assert mapped[50, 0] == values[50, 0]
    np.savez(folder / "x.npz", x=values, y=values[:3])
    with np.load(folder / "x.npz") as archive:
        assert np.array_equal(archive["y"], values[:3])
    np.savez_compressed(folder / "z.npz", x=values)
    with np.load(folder / "z.npz") as archive:
        assert np.array_equal(archive["x"], values)
    created = np.memmap(folder / "map", dtype=np.int32, mode="w+", shape=(5000,))
    created[::100] = 1
    created.flush()
    values.tofile(folder / "raw")
    assert np.array_equal(
        np.fromfile(folder / "raw", dtype=np.float32, count=100, offset=4000), values.ravel()[1000:1100]
    )
    with open(folder / "raw", "rb") as file:
        np.fromfile(file, dtype=np.float32, count=3)
        np.fromfile(file, dtype=np.float32, count=5000)
        assert file.tell() == 5003 * 4
    np.savetxt(folder / "x.txt", values[:5])
    assert np.loadtxt(folder / "x.txt").shape == (5, 600)


def tables(folder: Path) -> None:
    """pandas, pyarrow with its threads, Pillow."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    frame = pd.DataFrame({"a": np.arange(20_000), "b": np.random.default_rng(1).random(20_000)})
    frame.to_csv(folder / "x.csv")
    assert len(pd.read_csv(folder / "x.csv")) == 20_000
    frame.to_parquet(folder / "x.parquet", row_group_size=4000)
    assert len(pd.read_parquet(folder / "x.parquet", columns=["b"])) == 20_000
    assert pq.read_table(folder / "x.parquet", use_threads=True, pre_buffer=True).num_rows == 20_000
    assert pq.ParquetFile(folder / "x.parquet").read_row_group(2).num_rows == 4000
    assert pq.read_table(folder / "x.parquet", memory_map=True).num_rows == 20_000
    with pa.OSFile(str(folder / "os"), "wb") as file:
        file.write(bytes(10_000))
    with pa.OSFile(str(folder / "os")) as file:
        file.seek(100)
        assert len(file.read(500)) == 500
        assert len(file.read_at(50, 900)) == 50
    with pa.memory_map(str(folder / "os")) as file:
        assert len(file.read(4000)) == 4000
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_file(str(folder / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_file(pa.OSFile(str(folder / "x.arrow"))).read_all().num_rows == 20_000
    pixels = np.random.default_rng(2).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    for name in ("x.jpeg", "x.png", "x.tiff"):
        Image.fromarray(pixels).save(folder / name)
        with Image.open(folder / name) as image:
            assert np.asarray(image).shape == (90, 120, 3)


def tensors(folder: Path) -> None:
    """Files of torch and safetensors, mapped and not."""
    import torch
    from safetensors.torch import load_file, safe_open, save_file

    state = {"w": torch.arange(50_000.0), "b": torch.ones(10)}
    save_file(state, folder / "x.safetensors")
    assert torch.equal(load_file(folder / "x.safetensors")["w"], state["w"])
    with safe_open(folder / "x.safetensors", framework="pt") as file:
        assert file.get_slice("w")[10:20].sum() == state["w"][10:20].sum()
    torch.save(state, folder / "x.pt")
    for mapped in (False, True):
        assert torch.equal(torch.load(folder / "x.pt", mmap=mapped)["w"], state["w"])
    torch.save(state, folder / "old.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(torch.load(folder / "old.pt")["w"], state["w"])
    with open(folder / "handle.pt", "wb") as handle:
        torch.save(state, handle)
    buffer = io.BytesIO((folder / "handle.pt").read_bytes())
    assert torch.equal(torch.load(buffer)["w"], state["w"])
    shared = torch.from_file(str(folder / "shared"), shared=True, size=1000)
    shared.fill_(1.0)


class Rows:
    """A data set of rows of a file of its own copy of the data; opened by whoever reads first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: io.FileIO | None = None

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = io.FileIO(self.path)
        self.file.seek(index * 1000)
        return len(self.file.read(1000)) + len(os.pread(self.file.fileno(), 100 + index, index))


def loaders(folder: Path) -> None:
    """Workers of torch's DataLoader, by each start method, kept over epochs or not."""
    from torch.utils.data import DataLoader

    for method in ("fork", "forkserver", "spawn"):
        path = folder / method
        path.write_bytes(os.urandom(24_000))
        # New workers for each epoch cost an import of torch where they are not forked.
        for persistent in (True, False) if method == "fork" else (True,):
            loader = DataLoader(
                Rows(path),  # type: ignore[arg-type]
                batch_size=3,
                num_workers=2,
                multiprocessing_context=method,
                persistent_workers=persistent,
            )
            for _ in range(2):
                assert sum(int(batch.sum()) for batch in loader) == 24 * 1100 + 276
            del loader


UNSEEN_BYTES = 1 << 20


def unseen(folder: Path) -> None:
    """What no recorder of calls can see; each in a process of its own, which leaves a file ``<name>-<pid>``."""
    for case in (_mapped, _raw, _ring):
        path = folder / case.__name__
        with path.open("wb") as file:
            file.write(os.urandom(UNSEEN_BYTES))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if os.fork() == 0:
            name = case.__name__ if case(path) else "not-here"
            (folder / f"{name}-{os.getpid()}").touch()
            os._exit(0)
        assert os.wait()[1] == 0


def _mapped(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return len(mapped[:]) == UNSEEN_BYTES


def _system_call() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return lambda number, *arguments: int(function(*map(ctypes.c_long, (number, *arguments))))


def _raw(path: Path) -> bool:
    number = {"x86_64": 17, "aarch64": 67}.get(platform.machine())
    if number is None:
        return False
    buffer = ctypes.create_string_buffer(UNSEEN_BYTES)
    with path.open("rb") as file:
        return _system_call()(number, file.fileno(), ctypes.addressof(buffer), UNSEEN_BYTES, 0) == UNSEEN_BYTES


def _ring(path: Path) -> bool:
    """Read through io_uring, laid out as in linux/io_uring.h; False where the kernel does not let us."""
    setup, enter, read, get_events, entries_at = 425, 426, 22, 1, 0x10000000
    call, parameters = _system_call(), ctypes.create_string_buffer(120)
    ring = call(setup, 1, ctypes.addressof(parameters))
    if ring < 0:
        return False
    buffer = ctypes.create_string_buffer(UNSEEN_BYTES)
    tail, array = struct.unpack_from("I", parameters, 44)[0], struct.unpack_from("I", parameters, 64)[0]
    with path.open("rb") as file, mmap.mmap(ring, 4096) as queue, mmap.mmap(ring, 64, offset=entries_at) as entries:
        struct.pack_into("=BBHiQQI", entries, 0, read, 0, 0, file.fileno(), 0, ctypes.addressof(buffer), UNSEEN_BYTES)
        struct.pack_into("I", queue, array, 0)
        struct.pack_into("I", queue, tail, 1)
        done = call(enter, ring, 1, 1, get_events, 0, 0)
    os.close(ring)
    return done == 1 and buffer.raw == path.read_bytes()


PROGRAMS = {program.__name__: program for program in (plain, arrays, tables, tensors, loaders, unseen)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]))
