"""Text of strace, of all option mixes, becomes a recording."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from strace import need_strace

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.importers.strace import read_strace

PLAIN = """\
7 1700000000.000100 openat(AT_FDCWD, "/data/a", O_RDONLY|O_CLOEXEC) = 3 <0.000020>
7 1700000000.000200 read(3, "\\1\\2"..., 4096) = 100 <0.000030>
7 1700000000.000300 lseek(3, 1000, SEEK_SET)  = 1000 <0.000001>
7 1700000000.000400 read(3, "= 7 <0.5>, ) = 3", 50) = 50 <0.000030>
7 1700000000.000500 pread64(3, "x", 10, 8) = 10 <0.000005>
7 1700000000.000600 preadv2(3, [{iov_base="a", iov_len=4}], 1, 64, RWF_NOWAIT) = 4 <0.000005>
7 1700000000.000700 preadv2(3, [{iov_base="a", iov_len=4}], 1, -1, 0) = 4 <0.000005>
7 1700000000.000800 dup(3)                    = 9 <0.000001>
7 1700000000.000900 read(9, ""..., 6)         = 6 <0.000005>
7 1700000000.001000 read(3, 0x7ffe, 6)        = -1 EIO (Input/output error) <0.000005>
7 1700000000.001100 mmap(NULL, 8192, PROT_READ, MAP_SHARED, 3, 0x1000) = 0x7f0000000000 <0.000005>
7 1700000000.001150 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000010000 <0.000005>
7 1700000000.001200 close(3)                  = 0 <0.000001>
7 1700000000.001300 newfstatat(AT_FDCWD, "/data/b", 0x7ffe, 0) = -1 ENOENT (No such file or directory) <0.000002>
7 1700000000.001400 futex(0x1, FUTEX_WAKE, 1) = 0 <0.000001>
7 1700000000.001500 --- SIGCHLD {si_signo=SIGCHLD} ---
7 1700000000.001600 +++ exited with 0 +++
"""


def read(tmp_path: Path, text: str | bytes, name: str = "log.txt") -> Recording:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_strace(path, [path])


def rows(found: Recording, *columns: str) -> list[list[object]]:
    return found.events.frame[list(columns)].values.tolist()


def test_offsets_follow_the_descriptor(tmp_path: Path) -> None:
    found = read(tmp_path, PLAIN)
    assert rows(found, "op", "file", "offset", "bytes") == [
        ["open", "/data/a", -1, -1],
        ["read", "/data/a", 0, 100],
        ["lseek", "/data/a", 1000, -1],
        ["read", "/data/a", 1000, 50],
        ["pread", "/data/a", 8, 10],
        ["preadv2", "/data/a", 64, 4],
        ["preadv2", "/data/a", 1050, 4],
        ["read", "/data/a", 1054, 6],
        ["read", "/data/a", -1, -1],
        ["mmap", "/data/a", 4096, 8192],
        ["close", "/data/a", -1, -1],
        ["newfstatat", "/data/b", -1, -1],
    ]
    assert rows(found, "start_ns", "end_ns")[:2] == [[0, 20_000], [100_000, 130_000]]
    assert found.events.anchor_time_ns == 1_700_000_000_000_100_000
    assert found.sees == {"open", "read", "seek", "map", "close", "meta"}
    assert not found.trusted_times
    assert "recorded by strace" in found.notes[0]


def test_opens_that_fail_and_what_copies_write(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '7 1700000000.1 openat(AT_FDCWD</home>, "./a/../none", O_RDONLY) = -1 ENOENT (No such file) <0.1>\n'
        '7 1700000000.2 openat(AT_FDCWD</home>, "a", O_RDONLY) = 3</home/a> <0.1>\n'
        '7 1700000000.3 openat(AT_FDCWD</home>, "b", O_RDWR|O_CREAT, 0666) = 4</home/b> <0.1>\n'
        "7 1700000000.4 sendfile(4</home/b>, 3</home/a>, [10] => [110], 100) = 100 <0.1>\n"
        "7 1700000000.5 copy_file_range(3</home/a>, NULL, 4</home/b>, [7], 50, 0) = 50 <0.1>\n"
        "7 1700000000.6 splice(5<pipe:[77]>, NULL, 4</home/b>, NULL, 30, 0) = 30 <0.1>\n"
        "7 1700000000.7 splice(3</home/a>, NULL, 6<pipe:[78]>, NULL, 20, 0) = 20 <0.1>\n"
        "7 1700000000.8 sendfile(4</home/b>, 3</home/a>, NULL, 9) = -1 EIO (Input/output error) <0.1>\n"
        '7 1700000000.9 openat(AT_FDCWD</home>, "b", O_WRONLY|O_APPEND) = 8</home/b> <0.1>\n'
        '7 1700000000.91 pwrite64(8</home/b>, "a", 1, 5) = 1 <0.1>\n'
        '7 1700000000.92 openat(AT_FDCWD</home>, "d", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 9</home/d> <0.1>\n',
    )
    assert rows(found, "op", "file", "offset", "bytes") == [
        ["failed_open", "/home/none", -1, -1],
        ["open", "/home/a", -1, -1],
        ["open", "/home/b", -1, -1],
        ["sendfile", "/home/a", 10, 100],
        ["write", "/home/b", 0, 100],
        ["copy_file_range", "/home/a", 0, 50],
        ["write", "/home/b", 7, 50],
        ["write", "/home/b", 100, 30],
        ["splice", "/home/a", 50, 20],
        ["sendfile", "/home/a", -1, -1],
        ["open", "/home/b", -1, -1],
        # It appends, and the log does not tell where that is.
        ["pwrite", "/home/b", -1, 1],
        ["opendir", "/home/d", -1, -1],
    ]


def test_paths_of_y_name_what_the_log_did_not_open(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        b'7 1700000000.1 read(5</data/x \\303\\274\\"\\74q\\76.bin>, "a", 9) = 9 <0.1>\n'
        b'7 1700000000.2 read(5</data/\\377 (deleted)>, "a", 9) = 9 <0.1>\n'
        b'7 1700000000.3 write(1</dev/pts/0<char 136:0>>, "a", 1) = 1 <0.1>\n'
        b'7 1700000000.4 read(6<pipe:[77]>, "a", 1) = 1 <0.1>\n'
        b'7 1700000000.5 sendto(7<TCP:[1->2]>, "a", 1) = 1 <0.1>\n'
        b'7 1700000000.6 newfstatat(5</data/y>, "", {st_mode=S_IFREG}, AT_EMPTY_PATH) = 0 <0.1>\n'
        b'7 1700000000.7 newfstatat(AT_FDCWD</home>, "sub/z", {st_mode=S_IFREG}, 0) = 0 <0.1>\n'
        b'7 1700000000.8 openat(AT_FDCWD</home>, "w", O_WRONLY|O_APPEND) = 8</home/w> <0.1>\n'
        b'7 1700000000.9 write(8</home/w>, "a", 1) = 1 <0.1>\n',
    )
    assert rows(found, "op", "file", "offset") == [
        ["read", '/data/x ü"<q>.bin', -1],
        ["read", r"/data/\xff", -1],
        ["write", "/dev/pts/0", -1],
        ["newfstatat", "/data/y", -1],
        ["newfstatat", "/home/sub/z", -1],
        ["open", "/home/w", -1],
        # Where an append goes is not told.
        ["write", "/home/w", -1],
    ]
    assert any("1 calls on pipes" in note for note in found.notes)


def test_interrupted_calls_are_put_together(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '1 1700000000.000000 openat(AT_FDCWD, "/d", O_RDONLY) = 3 <0.000001>\n'
        "1 1700000000.001000 clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD <unfinished ...>\n"
        "2 1700000000.002000 read(3 <unfinished ...>\n"
        "1 1700000000.002100 <... clone resumed>, parent_tid=[2]) = 2 <0.001100>\n"
        '1 1700000000.003000 read(3, "", 10) = 10 <0.000001>\n'
        '2 1700000000.004000 <... read resumed>, "", 20) = 20 <0.002000>\n'
        "1 1700000000.005000 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 5 <0.000100>\n"
        '5 1700000000.006000 read(3, "", 5) = 5 <0.000001>\n'
        "5 1700000000.006500 close(3) = 0 <0.000001>\n"
        '1 1700000000.007000 read(3, "", 5) = 5 <0.000001>\n'
        "1 1700000000.008000 read(3 <unfinished ...>\n"
        "9 1700000000.008500 <... read resumed>, 7) = 7 <0.1>\n",
    )
    # Sorted by start; offsets in the order in which the calls ended, in one table of both threads.
    assert rows(found, "op", "pid", "tid", "offset", "start_ns", "end_ns") == [
        ["open", 1, 1, -1, 0, 1000],
        ["read", 1, 2, 10, 2_000_000, 4_000_000],
        ["read", 1, 1, 0, 3_000_000, 3_001_000],
        ["read", 5, 5, 30, 6_000_000, 6_001_000],
        ["close", 5, 5, -1, 6_500_000, 6_501_000],
        # The fork has its own table, but the same open file.
        ["read", 1, 1, 35, 7_000_000, 7_001_000],
    ]
    assert any("2 calls lack their begin or their end" in note for note in found.notes)


def test_every_way_to_write_the_time_is_read(tmp_path: Path) -> None:
    calls = ['openat(AT_FDCWD, "/d", O_RDONLY) = 3', 'read(3, "", 5) = 5', 'read(3, "", 5) = 5']
    clocks = {
        "-ttt": ["1700000000.250000", "1700000000.500000", "1700000001.000000"],
        "-ttt ns": ["1700000000.250000000", "1700000000.500000000", "1700000001.000000000"],
        "-tt, midnight": ["23:59:59.750000", "00:00:00.000000", "00:00:00.500000"],
        "-r": ["     0.000000", "     0.250000", "     0.500000"],
        "-ttt -r": ["1700000000.25 (+     0.0)", "1700000000.5 (+     0.25)", "1700000001.0 (+     0.5)"],
    }
    clocks["-ttt -r"] = [f"{word.split(' ')[0]} (+     0.250000)" for word in clocks["-ttt -r"]]
    for option, stamps in clocks.items():
        for prefix in ("", "42 ", "[pid    42] ", "42<python3> "):
            text = "".join(f"{prefix}{stamp} {call}\n" for stamp, call in zip(stamps, calls, strict=True))
            found = read(tmp_path, text)
            assert rows(found, "start_ns", "end_ns") == [[0, 0], [250_000_000] * 2, [750_000_000] * 2], option
            assert rows(found, "tid") == [[42 if prefix else 0]] * 3
            assert any("no call has its duration" in note for note in found.notes)
            assert found.events.anchor_time_ns == (1_700_000_000_250_000_000 if "-ttt" in option else 0)


def test_the_files_of_ff_are_one_program(tmp_path: Path) -> None:
    files = [tmp_path / "s.10", tmp_path / "s.11"]
    files[0].write_text(
        '1700000000.1 openat(AT_FDCWD, "/d", O_RDONLY) = 3 <0.1>\n'
        "1700000000.2 clone(child_stack=NULL, flags=SIGCHLD) = 11 <0.1>\n"
        '1700000000.4 read(3, "", 5) = 5 <0.1>\n'
    )
    files[1].write_text('1700000000.3 read(3, "", 7) = 7 <0.1>\n')
    found = read_strace(tmp_path, files)
    assert rows(found, "pid", "op", "offset") == [[10, "open", -1], [11, "read", 0], [10, "read", 7]]


def test_a_log_that_is_cut_or_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = PLAIN.encode()
    assert len(read(tmp_path, whole[:-700]).events.frame) == 7
    rng = random.Random(5)
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        found = read(tmp_path, bytes(damaged[: rng.randrange(300, len(damaged))]))
        frame = found.events.frame
        assert (frame["end_ns"] >= frame["start_ns"]).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "contains no system call"),
        ("7 1700000000.1 futex(0x1, FUTEX_WAKE, 1) = 0\n", "contains no system call"),
        ('read(3, "", 5) = 5\n', "1 lines have no time"),
        ("7 1700000000.1 garbage\n", "1 lines could not be understood"),
    ],
)
def test_nothing_is_an_error_with_its_reason(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(tmp_path, text)


PROGRAM = """
import os, threading
fd = os.open("data.bin", os.O_CREAT | os.O_RDWR)
os.write(fd, bytes(1000)); os.lseek(fd, 10, 0); os.read(fd, 20); os.pread(fd, 5, 3)
copy = os.dup(fd); os.read(copy, 7); os.preadv(fd, [bytearray(4), bytearray(4)], 200)
if os.fork() == 0:
    os.read(fd, 3); os._exit(0)
os.wait()
thread = threading.Thread(target=os.read, args=(fd, 11)); thread.start(); thread.join()
os.fsync(fd); os.pwrite(fd, b"12", 500); os.close(copy); os.close(fd)
"""


@pytest.mark.parametrize("options", [["-f", "-y", "-ttt", "-T"], ["-ff", "-tt"], ["-f", "-r", "-T", "-xx", "-yy"]])
def test_a_real_program_is_read(tmp_path: Path, options: list[str]) -> None:
    need_strace()
    names = "openat,open,read,write,pread64,pwrite64,preadv,preadv2,lseek,dup,fcntl,fsync,close,clone,clone3,fork,vfork"
    command = [
        "strace",
        *options,
        "-e",
        f"trace={names}",
        "-o",
        str(tmp_path / "log"),
        sys.executable,
        "-I",
        "-S",
        "-c",
    ]
    subprocess.run([*command, PROGRAM], cwd=tmp_path, check=True, timeout=60, env={**os.environ, "LD_PRELOAD": ""})
    files = sorted(tmp_path.glob("log*"))
    found = read_strace(tmp_path, files)
    frame = found.io[found.io["file"].astype(str).str.endswith("data.bin")]
    moves = frame[frame["bytes"] >= 0][["op", "offset", "bytes"]].values.tolist()
    assert moves == [
        ["write", 0, 1000],
        ["read", 10, 20],
        ["pread", 3, 5],
        ["read", 30, 7],
        ["preadv2", 200, 8],
        ["read", 37, 3],
        ["read", 40, 11],
        ["pwrite", 500, 2],
    ]
    assert frame["pid"].nunique() == 2
    assert frame["tid"].nunique() == 3
    assert list(frame["op"].astype(str))[-3:] == ["pwrite", "close", "close"]
    assert np.all(np.diff(frame["start_ns"]) >= 0)
    if "-y" in options:
        assert set(frame["file"]) == {str(tmp_path / "data.bin")}
