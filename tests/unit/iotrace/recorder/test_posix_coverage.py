"""The recorder of I/O calls beside strace, which traces the same run: call by call and byte for byte.

Both must tell the same sequence of opens, reads, writes, seeks, syncs, maps and closes for each thread and
file, over the libraries of data loading and the ways in which loaders start processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from descriptors import FOLLOWED, Access, accesses
from posix_programs import UNSEEN_BYTES
from ranks import SUPPORT, clean_environ
from strace import need_strace, trace

from dlio_torch.iotrace.events.call_names import CLASSES, META, READ, WRITE, class_codes
from dlio_torch.iotrace.events.event_table import EventTable, read_events
from dlio_torch.iotrace.recorder import preload

PROGRAMS = SUPPORT / "posix_programs.py"
_NOT_IN_ORACLE = ("munmap", "mremap", "msync", "fflush")
_STREAM_CALLS = {
    **dict.fromkeys(("fopen", "freopen"), "open"),
    **dict.fromkeys(("fread", "fgets", "getline"), "read"),
    **dict.fromkeys(("fwrite", "fputs", "fprintf"), "write"),
    "fclose": "close",
    "fseek": "lseek",
}
"""Calls on buffered streams, and what they do as far as the kernel sees."""

Calls = Mapping[tuple[int, str], list[tuple[str, int, int]]]
"""Name, offset and bytes of each call, in their order, by thread and file (its path in the data folder)."""


@dataclass(frozen=True)
class Traced:
    """One run, seen twice."""

    expected: Calls
    recorded: Calls
    events: EventTable

    def differences(self) -> list[str]:
        """One line for each thread and file whose calls differ: the first call that does."""
        lines = []
        for key in sorted({*self.expected, *self.recorded}):
            ours, theirs = self.recorded.get(key, []), self.expected.get(key, [])
            if any(call[0] in _STREAM_CALLS for call in ours):
                ours, theirs = merged(ours), merged(theirs)
            if ours != theirs:
                at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
                at = min(at, len(ours), len(theirs))
                counts = f"recorded {len(ours)}, strace {len(theirs)}"
                lines.append(f"{key}: {counts}; call {at}: {ours[at : at + 2]} for {theirs[at : at + 2]}")
        return lines

    def files(self) -> set[str]:
        """Files that were touched."""
        return {file for _, file in self.recorded}

    def ops(self, file: str) -> set[str]:
        """Names of the calls on a file."""
        return {call[0] for key, calls in self.recorded.items() if key[1] == file for call in calls}


def merged(calls: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Reads and writes without regard to how many calls they took.

    A record of a buffered stream holds all that one call of the program moved between buffer and kernel.
    """
    kept: list[tuple[str, int, int]] = []
    for name, offset, size in calls:
        op = _STREAM_CALLS.get(name, name)
        if op == "lseek" or (op in ("read", "write") and size == 0):
            continue
        if kept and op in ("read", "write") and kept[-1][0] == op and kept[-1][1] + kept[-1][2] == offset:
            kept[-1] = (op, kept[-1][1], kept[-1][2] + size)
        else:
            kept.append((op, offset, size))
    return kept


def run_twice_seen(command: Sequence[str | Path], folder: Path) -> Traced:
    """Run a program on ``folder/data``, under strace and with the recorder preloaded."""
    data, events = folder / "data", folder / "events"
    data.mkdir()
    events.mkdir()
    variables = preload.environment(events, include=[str(data)])
    preloaded = ["env", *(f"{name}={value}" for name, value in variables.items())]
    calls = trace([*preloaded, *command], folder / "log", cwd=folder, env=clean_environ(), traced=FOLLOWED)
    table = read_events(events)
    assert not table.skipped
    return Traced(by_stream(accesses(calls, data), data), by_stream(recorded(table), data), table)


def recorded(table: EventTable) -> list[Access]:
    """The calls that both tell; the recorder has failed ones, too."""
    frame = table.frame[(table.frame["layer"] == "posix").to_numpy()]
    codes = class_codes(frame)
    moves = np.isin(codes, [CLASSES.index(READ), CLASSES.index(WRITE)])
    failed = moves & (frame["bytes"] < 0).to_numpy()
    left_out = (codes == CLASSES.index(META)) | frame["op"].isin(_NOT_IN_ORACLE).to_numpy()
    frame = frame[~failed & ~left_out]
    columns = (frame[name].tolist() for name in ("tid", "op", "file", "offset", "bytes"))
    return [Access(*row) for row in zip(*columns, strict=True)]


def by_stream(calls: Sequence[Access], data: Path) -> Calls:
    """The calls of each thread and file, without seeks to where its last access ended, or to the first byte.

    The recorder asks for the position after each read and write in that way, which strace sees.
    """
    streams: dict[tuple[int, str], list[tuple[str, int, int]]] = defaultdict(list)
    positions: dict[tuple[int, str], int] = {}
    for call in calls:
        key = call.tid, str(Path(call.file).relative_to(data))
        if call.op == "lseek" and positions.get(key, 0) == call.offset:
            continue
        streams[key].append((call.op, call.offset, call.bytes))
        if call.op != "mmap" and call.offset >= 0:
            positions[key] = call.offset + max(call.bytes, 0)
    return streams


def run_program(name: str, folder: Path) -> Traced:
    need_strace()
    return run_twice_seen([sys.executable, PROGRAMS, name, folder / "data"], folder)


def test_plain_files_descriptors_threads_and_children(tmp_path: Path) -> None:
    traced = run_program("plain", tmp_path)
    assert traced.differences() == []
    files = {"text", "copyfile", "gz", "zip", "sqlite", "sqlite-journal", "parts", "sub/relative", "text-cp", "text-dd"}
    assert files <= traced.files()
    assert {"open", "write", "fdatasync", "close"} <= traced.ops("sqlite") | traced.ops("text")
    assert {"readv", "preadv2", "writev", "pwritev2", "sendfile", "copy_file_range"} <= traced.ops("text")


def test_h5py_and_numpy(tmp_path: Path) -> None:
    traced = run_program("arrays", tmp_path)
    assert traced.differences() == []
    assert {"contiguous.h5", "chunked.h5", "x.npy", "x.npz", "z.npz", "map", "raw", "x.txt"} <= traced.files()
    assert "pread" in traced.ops("chunked.h5")
    assert "mmap" in traced.ops("x.npy")


def test_pandas_pyarrow_and_pillow(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("PIL", reason="pillow is not installed")
    traced = run_program("tables", tmp_path)
    assert traced.differences() == []
    assert {"x.csv", "x.parquet", "os", "x.arrow", "x.jpeg", "x.png", "x.tiff"} <= traced.files()
    readers = {tid for tid, file in traced.recorded if file == "x.parquet"}
    assert len(readers) > 1, "pyarrow read with one thread only"


def test_torch_and_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    traced = run_program("tensors", tmp_path)
    assert traced.differences() == []
    assert {"x.safetensors", "x.pt", "old.pt", "handle.pt", "shared"} <= traced.files()
    for mapped in ("x.safetensors", "x.pt", "shared"):
        assert "mmap" in traced.ops(mapped)


def test_workers_of_every_start_method(tmp_path: Path) -> None:
    traced = run_program("loaders", tmp_path)
    assert traced.differences() == []
    for method, processes in (("fork", 6), ("forkserver", 2), ("spawn", 2)):
        readers = {tid for (tid, file), calls in traced.recorded.items() if file == method and calls[-1][0] == "pread"}
        assert len(readers) == processes


def test_a_run_of_this_package(tmp_path: Path) -> None:
    need_strace()
    options = ("recipe=minimal", "scale=tiny", "compute.mode=none", "loader.num_workers=2", "output.dir=run")
    traced = run_twice_seen([sys.executable, "-m", "dlio_torch", *options], tmp_path)
    assert traced.differences() == []
    assert sum(file.endswith(".h5") and "pread" in traced.ops(file) for file in traced.files()) == 4


def test_what_no_recorder_of_calls_can_see_is_told_by_the_accounts(tmp_path: Path) -> None:
    data, events = tmp_path / "data", tmp_path / "events"
    data.mkdir()
    events.mkdir()
    environment = clean_environ() | preload.environment(events, include=[str(data)])
    subprocess.run([sys.executable, PROGRAMS, "unseen", data], env=environment, check=True)
    table = read_events(events)
    accounts = {account.pid: account for account in table.accounts}
    cases = {name: accounts[int(pid)] for name, _, pid in (path.name.rpartition("-") for path in data.glob("*-*"))}
    on_device = os.major(data.stat().st_dev) != 0
    size = UNSEEN_BYTES
    for account in cases.values():
        assert account.complete
        assert account.read_bytes is not None
        assert account.read_bytes >= size or not on_device  # evicted before: whoever reads, the device must
    mapped = cases["_mapped"]
    assert (mapped.rchar, mapped.traced_read_bytes, mapped.mapped_bytes) == (0, 0, size)
    assert mapped.major_faults or not on_device
    if "_raw" in cases:
        assert (cases["_raw"].rchar, cases["_raw"].traced_read_bytes) == (size, 0)
    if "_ring" in cases:
        assert cases["_ring"].io_uring_rings == 1
        # What was read again by a call, to compare.
        assert cases["_ring"].rchar == cases["_ring"].traced_read_bytes == size
    assert all(account.io_uring_rings == 0 for name, account in cases.items() if name != "_ring")
