"""The recorder of I/O calls: what is recorded of each kind of call, in which processes, and what it survives."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked_programs import close_servers
from ranks import clean_environ
from strace import need_strace

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.iotrace.events.event_table import EventTable, read_events
from dlio_torch.iotrace.events.path_patterns import selector
from dlio_torch.iotrace.events.posix_accounts import ProcessIo, UnrecordedProcess, without_recorded
from dlio_torch.iotrace.figures.io_metrics import analyse
from dlio_torch.iotrace.figures.untraced_io import untraced
from dlio_torch.iotrace.recorder import preload
from dlio_torch.iotrace.recorder.record_program import record
from dlio_torch.native import build
from dlio_torch.report.html import write_report
from dlio_torch.report.io_text import print_io

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="needs a C compiler")

MIB = 1 << 20
PRELUDE = """
import ctypes, mmap, os, sys, threading
data = sys.argv[1]
os.chdir(data)
libc = ctypes.CDLL(None, use_errno=True)
def make(name, size=10000):
    with open(name, "wb") as file:
        file.write(os.urandom(size))
"""


class Folder:
    """A folder for data and one for events; runs Python programs that record."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self.events = path / "events"
        self.data.mkdir()
        self.events.mkdir()

    def run(
        self, program: str, *args: str, exit_code: int = 0, variables: dict[str, str] | None = None, **options: Any
    ):
        options = {"include": [str(self.data)]} | options
        environ = clean_environ() | preload.environment(self.events, **options) | (variables or {})
        command = [sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(program), str(self.data), *args]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done

    def table(self) -> EventTable:
        table = read_events(self.events)
        assert table.skipped == ()
        return table

    def calls(self, *left_out: str, pid: int | None = None) -> list[tuple[str, str, int, int]]:
        """Call, file below the data folder, offset and bytes, in their order."""
        frame = self.table().frame
        assert set(frame["layer"]) <= {"posix"}
        assert (frame["end_ns"] >= frame["start_ns"]).all()
        assert set(frame["step"]) <= {-1}
        rows = frame if pid is None else frame[frame["pid"] == pid]
        names = [str(name).removeprefix(f"{self.data}/") for name in rows["file"]]
        found = zip(rows["op"], names, rows["offset"], rows["bytes"], strict=True)
        return [row for row in found if row[0] not in ("stat", "fstat", *left_out)]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def one(values: Sequence[Any]) -> Any:
    assert len(values) == 1, values
    return values[0]


def test_calls_on_descriptors(folder: Folder) -> None:
    folder.run("""
        fd = os.open("f", os.O_RDWR | os.O_CREAT)
        os.write(fd, bytes(1000))
        os.pwrite(fd, bytes(10), 500)
        os.writev(fd, [bytes(3), bytes(4)])
        os.pwritev(fd, [bytes(3), bytes(4)], 20)
        os.fsync(fd)
        os.fdatasync(fd)
        os.ftruncate(fd, 900)
        os.lseek(fd, -100, os.SEEK_END)
        os.read(fd, 30)
        os.read(fd, 500)
        os.read(fd, 1)
        os.pread(fd, 40, 7)
        os.readv(fd, [bytearray(8)])
        os.preadv(fd, [bytearray(8), bytearray(2)], 100)
        os.posix_fallocate(fd, 0, 2000)
        os.posix_fadvise(fd, 5, 6, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        read_only = os.open("f", os.O_RDONLY)
        try:
            os.write(read_only, b"x")
        except OSError as error:
            assert error.errno == 9
        os.close(read_only)
    """)
    # How Python calls preadv and pwritev depends on how it was built.
    assert [(call[0].removesuffix("2"), *call[1:]) for call in folder.calls()] == [
        ("open", "f", -1, -1),
        ("write", "f", 0, 1000),
        ("pwrite", "f", 500, 10),
        ("writev", "f", 1000, 7),
        ("pwritev", "f", 20, 7),
        ("fsync", "f", -1, -1),
        ("fdatasync", "f", -1, -1),
        ("ftruncate", "f", 900, -1),
        ("lseek", "f", 800, -1),
        ("read", "f", 800, 30),
        ("read", "f", 830, 70),
        ("read", "f", 900, 0),
        ("pread", "f", 7, 40),
        ("readv", "f", 900, 0),
        ("preadv", "f", 100, 10),
        ("fallocate", "f", 0, -1),
        ("posix_fadvise", "f", 5, -1),
        ("close", "f", -1, -1),
        ("open", "f", -1, -1),
        ("write", "f", 0, -1),
        ("close", "f", -1, -1),
    ]


def test_maps_copies_and_calls_on_names(folder: Folder) -> None:
    folder.run("""
        make("f")
        with open("f", "r+b", buffering=0) as file:
            with mmap.mmap(file.fileno(), 8192) as view:
                view[0] = 1
                view.flush()
        source, target = os.open("f", os.O_RDONLY), os.open("g", os.O_RDWR | os.O_CREAT)
        os.sendfile(target, source, 10, 100)
        os.copy_file_range(source, target, 50, 1000, 0)
        os.close(source), os.close(target)
        os.stat("g"), os.lstat("g"), os.access("g", 0)
        os.rename("g", "h"), os.mkdir("d"), os.rmdir("d"), os.truncate("h", 5), os.unlink("h")
        assert not os.path.exists("none")
        os.listdir(".")
    """)
    calls = [call for call in folder.calls() if call[0] != "lseek"][4:]  # after making the file
    assert calls[:4] == [
        ("mmap", "f", 0, 8192),
        ("msync", "f", -1, -1),
        ("close", "f", -1, -1),  # the copy of the descriptor that Python's map keeps
        ("munmap", "f", -1, 8192),
    ]
    assert calls[7:13] == [
        ("sendfile", "f", 10, 100),
        ("write", "g", 0, 100),
        ("copy_file_range", "f", 1000, 50),
        ("write", "g", 0, 50),
        ("close", "f", -1, -1),
        ("close", "g", -1, -1),
    ]
    assert [call[:2] for call in calls[13:]] == [
        ("lstat", "g"), ("access", "g"), ("rename", "g"), ("mkdir", "d"), ("rmdir", "d"),
        ("truncate", "h"), ("unlink", "h"), ("opendir", str(folder.data)),
    ]  # fmt: skip
    assert one([call for call in folder.table().frame["file"] if str(call).endswith("none")])


def test_descriptors_that_share_a_file_share_its_position(folder: Folder) -> None:
    folder.run("""
        make("f")
        a = os.open("f", os.O_RDONLY)
        b = os.dup(a)
        c = libc.fcntl(a, 0, 100)  # F_DUPFD
        os.dup2(a, 200)
        os.read(a, 10), os.read(b, 20), os.read(c, 30), os.read(200, 40)
        if os.fork() == 0:
            os.read(a, 100)
            os._exit(0)
        os.wait()
        os.read(b, 1)
        libc.syscall(8, a, 5000, 0)  # lseek, unseen
        os.read(a, 2)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, b"12345")
        os.lseek(log, 0, 0)
        os.write(log, b"6789")
    """)
    reads = [call[2:] for call in folder.calls() if call[0] == "read"]
    assert reads == [(0, 10), (10, 20), (30, 30), (60, 40), (100, 100), (200, 1), (5000, 2)]
    assert [call[2:] for call in folder.calls() if call[:2] == ("write", "log")] == [(0, 5), (5, 4)]


def test_names(folder: Folder) -> None:
    """Relative to the working directory or a descriptor, through links, of any bytes; some are escaped."""
    folder.run(r"""
        os.mkdir("d")
        os.symlink("d", "link")
        names = ["d/f", "./d//g", "link/h", "link/../i", 'q"\\\n', "é𝄞", b"\xff\xed\xa0\x80"]
        for name in names:
            os.close(os.open(name, os.O_CREAT))
        folder = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
        os.close(os.open("k", os.O_CREAT, dir_fd=folder))
        os.close(folder)
        os.chdir("d")
        os.close(os.open("m", os.O_CREAT))
    """)
    opened = [call[1] for call in folder.calls() if call[0] == "open"]
    expected = ["d/f", "d/g", "link/h", "i", r'q"\\n', "é𝄞", r"\xff\xed\xa0\x80", "d", "d/k", "d/m"]
    assert opened == expected


def test_failed_opens_are_no_opens(folder: Folder) -> None:
    folder.run("""
        make("f")
        libc.fopen.restype = libc.freopen.restype = ctypes.c_void_p
        for call in (os.open, os.listdir):
            try:
                call("none", os.O_RDONLY) if call is os.open else call("none")
            except OSError:
                pass
        assert libc.fopen(b"none", b"r") is None
        assert libc.freopen(b"none", b"r", ctypes.c_void_p(libc.fopen(b"f", b"r"))) is None
    """)
    assert [call[0] for call in folder.calls() if call[1] == "none"] == ["failed_open"] * 4
    assert [call[0] for call in folder.calls() if "open" in call[0] and call[1] == "f"] == ["open", "fopen"]


def test_copies_through_pipes_and_appending_writes(folder: Folder) -> None:
    folder.run("""
        make("f")
        source, target = os.open("f", os.O_RDONLY), os.open("g", os.O_RDWR | os.O_CREAT)
        r, w = os.pipe()
        libc.splice(source, None, w, None, 600, 0)
        libc.splice(source, ctypes.byref(ctypes.c_int64(5000)), w, None, 100, 0)
        libc.splice(r, None, target, None, 50, 0)
        libc.splice(r, None, target, ctypes.byref(ctypes.c_int64(300)), 650, 0)
        log = os.open("g", os.O_WRONLY | os.O_APPEND)
        os.pwrite(log, b"123", 5)
        os.pwritev(log, [b"45", b"6"], 7)
    """)
    assert [(call[0].removesuffix("2"), *call[1:]) for call in folder.calls("open", "close")][-6:] == [
        ("splice", "f", 0, 600),
        ("splice", "f", 5000, 100),
        ("write", "g", 0, 50),
        ("write", "g", 300, 650),
        ("pwrite", "g", 950, 3),
        ("pwritev", "g", 953, 3),
    ]


def test_a_folder_is_included_under_its_links_too(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.data)
    folder.run("""
        make("f")
        with open("../link/f", "rb", buffering=0) as file:
            file.read(10)
        open("../link/x.bin", "w").close()
        open("../outside", "w").close()
    """, exclude=["*.bin"])  # fmt: skip
    files = folder.table().frame["file"].cat.categories
    assert set(files) == {str(folder.data / "f"), str(tmp_path / "link" / "f")}


def test_patterns(folder: Folder) -> None:
    program = """
        for name in sys.argv[2:]:
            make(name, 1)
    """
    names = ["a.h5", "b.txt", "sub.h5"]
    chosen = {
        "all": {},
        "glob": {"include": ["*.h5"]},
        "folder is no prefix of a name": {"include": [str(folder.data / "a")]},
        "file": {"include": [str(folder.data / "b.txt")]},
        "class": {"include": [str(folder.data) + "/[!b]*"], "exclude": ["*/a.*"]},
        "exclude": {"exclude": [str(folder.data)]},
    }
    expected = [["a.h5", "b.txt", "sub.h5"], ["a.h5", "sub.h5"], [], ["b.txt"], ["sub.h5"], []]
    for (name, options), files in zip(chosen.items(), expected, strict=True):
        is_wanted = selector(options.get("include", [str(folder.data)]), options.get("exclude", []))
        assert [one for one in names if is_wanted(str(folder.data / one))] == files, name
        for path in folder.events.iterdir():
            path.unlink()
        folder.run(program, *names, **options)
        assert [call[1] for call in folder.calls() if call[0] == "write"] == files, name


def test_default_patterns_leave_out_the_program_not_the_data(folder: Folder) -> None:
    folder.run(
        'import json, decimal; make("f", 5); open("/proc/self/stat").close(); os.stat(sys.prefix + "/..")', include=[]
    )
    assert {call[1] for call in folder.calls() if call[0] in ("open", "read", "write")} == {"f"}
    assert str(Path(sys.prefix).parent) not in set(folder.table().frame["file"])
    kept = preload.environment(folder.events, include=["/usr/share/data"])[preload.VARIABLE].split("\n")
    assert "-/usr" not in kept
    assert "-/etc" in kept


@pytest.mark.parametrize("pattern", ["data/x", "a\nb", "/" + "x" * 20_000])
def test_patterns_that_cannot_be_used_are_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="include pattern"):
        preload.environment(tmp_path, include=[pattern])


def test_threads_record_each_for_itself(folder: Folder) -> None:
    folder.run("""
        make("f", 1 << 20)
        fd = os.open("f", os.O_RDONLY)
        def reads(first):
            for number in range(2000):
                os.pread(fd, 512, first * 100000 + number)
        threads = [threading.Thread(target=reads, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """)
    frame = folder.table().frame
    reads = frame[frame["op"] == "pread"]
    assert len(reads) == 16_000
    offsets = [sorted(at - at.min()) for _, at in reads.groupby("tid")["offset"]]
    assert offsets == [list(range(2000))] * 8


def test_children_of_all_kinds_have_files_of_their_own(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        textwrap.dedent("""
            import multiprocessing, os, sys
            def work(path):
                with open(path, "rb", buffering=0) as file:
                    while file.read(1000):
                        pass
                os._exit(0)  # as loader workers do
            if __name__ == "__main__":
                for number, method in enumerate(("fork", "spawn", "forkserver")):
                    child = multiprocessing.get_context(method).Process(target=work, args=(sys.argv[1 + number],))
                    child.start()
                    child.join()
                    print(child.pid)
        """)
    )
    paths = [folder.data / f"f{number}" for number in range(3)]
    for path in paths:
        path.write_bytes(bytes(9500))
    environ = clean_environ() | preload.environment(folder.events, include=[str(folder.data)])
    command = [sys.executable, "-S", str(tmp_path / "child.py"), *map(str, paths)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    for number, pid in enumerate(map(int, done.stdout.split())):
        reads = [call[1:] for call in folder.calls(pid=pid) if call[0] == "read"]
        assert reads == [(f"f{number}", 1000 * at, 1000 if at < 9 else 500) for at in range(10)] + [
            (f"f{number}", 9500, 0)
        ]
        account = one([account for account in folder.table().accounts if account.pid == pid])
        assert account.complete


CAT = """
    #include <fcntl.h>
    #include <unistd.h>
    int main(int count, char **words)
    {
        static char room[1 << 20];
        if (count > 2) { /* start a program and wait for it */
            int child = fork();
            if (child == 0)
                execv(words[2], words + 2);
            while (read(open(words[1], O_RDONLY), room, sizeof room) < 0 || waitpid(child, 0, 0) < 0)
                ;
        }
        return read(open(words[1], O_RDONLY), room, sizeof room) < 0;
    }
"""


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads no library: reads the first MiB of a file, and, named another program, of it twice."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "cat.c").write_text("#include <sys/wait.h>\n" + textwrap.dedent(CAT))
    made = subprocess.run(["cc", "-static", "-o", folder / "static", folder / "cat.c"], check=False)
    if made.returncode != 0:
        pytest.skip("no static C library")
    return folder / "static"


def test_an_environment_without_our_variables_does_not_end_the_recording(folder: Folder) -> None:
    folder.run("""
        import subprocess
        def start(name, **options):
            make(name, 100000)
            subprocess.run(["cat", data + "/" + name], stdout=subprocess.DEVNULL, check=True, **options)
        start("empty", env={})
        start("own", env={"A": "1", "LD_PRELOAD": "libc.so.6", "PATH": os.environ["PATH"]})
        start("forked", env={}, preexec_fn=os.getpid)
        make("spawned", 100000)
        out = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
        os.waitpid(os.posix_spawn("/bin/cat", ["cat", "spawned"], {}, file_actions=out), 0)
        start("off", env={"LD_PRELOAD": ""})
        start("off_too", env={"DLIO_TORCH_POSIX": ""})
        make("executed", 100000)
        os.environ.clear()
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execv("/bin/cat", ["cat", "executed"])
    """, variables={"RANK": "3"})  # fmt: skip
    reads = [call[1] for call in folder.calls() if call[0] in ("read", "copy_file_range") and call[3] > 0]
    assert set(reads) == {"empty", "own", "forked", "spawned", "executed"}
    table = folder.table()
    assert {process.rank for process in table.processes} == {3}
    assert [(one.name, one.read_bytes // 100_000) for one in table.unrecorded] == [("cat", 1)] * 2


@pytest.mark.parametrize("rank", [{}, {"RANK": "3"}])
def test_a_program_that_clears_its_environment_gives_its_children_two_variables(
    rank: dict[str, str], folder: Folder
) -> None:
    done = folder.run("""
        libc.clearenv()
        for start in (libc.execve, lambda *words: libc.posix_spawn(room, words[0], None, None, *words[1:])):
            room = ctypes.create_string_buffer(8)
            words = (ctypes.c_char_p * 2)(b"env", None)
            if start is not libc.execve or os.fork() == 0:
                start(b"/usr/bin/env", words, (ctypes.c_char_p * 1)(None))
            os.wait()
    """, variables=rank)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "=" in line and not line.startswith(("limit=", "rank=", "-"))]
    assert [line.partition("=")[0] for line in lines] == ["LD_PRELOAD", "DLIO_TORCH_POSIX"] * 2
    assert ("rank=3" in done.stdout) == bool(rank)


def test_children_that_cannot_be_recorded_are_told(folder: Folder, static: Path) -> None:
    folder.run("""
        import subprocess
        make("f", 1 << 20)
        make("small", 1000)
        program, python = sys.argv[2:]
        def start(*words):
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        start(program, "f")
        start(program, "small")
        start("sh", "-c", program + " f; true")
        start("sh", "-c", "exec " + program + " f")
        start("bash", "-c", "cat /bin/sh; " + program + " f; true")
        start("cat", python)  # loads the library, and touches no file that is to be recorded
        killed = subprocess.Popen([python, "-c", "print(flush=True); import time; time.sleep(100)"], stdout=-1)
        killed.stdout.readline()
        killed.kill()
        killed.wait()
        start(program, "f", python, "-c", "open('f', 'rb', 0).read(); open('f', 'rb', 0).read()")
    """, str(static), sys.executable)  # fmt: skip
    table = folder.table()
    found = [(one.name, round(one.read_bytes / (1 << 20), 1)) for one in table.unrecorded]
    assert sorted(found) == [("static", 1.0)] * 4 + [("static", 2.0)]
    for account in table.accounts:
        assert account.rchar is not None
        assert account.rchar - account.traced_read_bytes < 200_000
    # Marks that are left: its own, and that of what an unrecorded program started.
    assert len(list(folder.events.glob(".*"))) == 2


def unrecorded(events: Path) -> list[tuple[str, int]]:
    """Name and MiB read of each process, or part of one, that was not recorded."""
    return sorted((one.name, round(one.read_bytes / MIB)) for one in read_events(events).unrecorded)


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of 8 MiB."""
    path = tmp_path / "big"
    path.write_bytes(bytes(8 * MIB))
    return path


READS_AND_EXECUTES = """
    import os, sys
    file, *words = sys.argv[1:]
    for part in [open(file, "rb", 0).read()] * 2:
        del part
    os.execv(words[0], words)
"""


def executing(file: Path, *words: object) -> list[str]:
    """A program that reads a file, and then becomes another program."""
    return [sys.executable, "-S", "-c", textwrap.dedent(READS_AND_EXECUTES), str(file), *map(str, words)]


def test_a_program_that_executes_one_that_cannot_be_recorded_is_told(static: Path, big: Path, tmp_path: Path) -> None:
    done = record(executing(big, static, big), tmp_path / "events")
    assert done.notes == ()
    assert unrecorded(tmp_path / "events") == [("static", 1)]
    recording = open_recording(tmp_path / "events")
    found = untraced(recording)
    assert (found["unrecorded_names"], found["complete"]) == (["static"], False)
    assert [row["complete"] for row in found["processes"]] == [False]
    assert found["read_bytes"] < 200_000  # what Python itself did not read by calls
    text = io.StringIO()
    print_io(analyse(recording), text)
    assert "lower bounds, because a process continued after its last counters were read" in " ".join(
        text.getvalue().split()
    )


def test_a_program_that_nothing_was_recorded_of_is_told_with_its_bytes(static: Path, big: Path, tmp_path: Path) -> None:
    done = record([str(static), str(big)], tmp_path / "events")
    assert "is linked statically" in done.notes[0]
    assert re.fullmatch(
        r"static \(process \d+\) was not recorded; by the kernel.s count, the process read 1.00 MiB and wrote 0 B",
        done.notes[1],
    )
    assert unrecorded(tmp_path / "events") == [("static", 1)]
    assert untraced(open_recording(tmp_path / "events"))["unrecorded_read_bytes"] >= MIB


def test_of_a_chain_of_programs_only_those_that_cannot_be_recorded_are_told(
    static: Path, big: Path, tmp_path: Path
) -> None:
    """Recorded, not recorded, recorded, in one process; the second one waits for a recorded child besides."""
    chain = textwrap.dedent("""
        #include <fcntl.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int count, char **words)
        {
            static char room[3 << 20];
            int child = fork();
            if (child == 0)
                execl("/bin/cat", "cat", words[1], (char *)0);
            waitpid(child, 0, 0);
            read(open(words[1], O_RDONLY), room, sizeof room);
            return execv(words[2], words + 2);
        }
    """)
    (tmp_path / "chain.c").write_text(chain)
    subprocess.run(["cc", "-w", "-static", "-o", tmp_path / "chain", tmp_path / "chain.c"], check=True)
    last = ["/bin/sh", "-c", f"cat {big} > {tmp_path}/out"]
    done = record([*executing(big, tmp_path / "chain", big), *last], tmp_path / "events")
    assert (done.exit_code, done.notes) == (0, ())
    assert unrecorded(tmp_path / "events") == [("chain", 3)]


def test_orphans_are_told(static: Path, big: Path, tmp_path: Path) -> None:
    """A process whose parent has ended before it, as daemons are."""
    close_servers()
    if threading.active_count() > 1 or psutil.Process().children():
        pytest.skip("this process has other threads or children")
    program = textwrap.dedent("""
        import os, sys
        static, big = sys.argv[1:]
        read, write = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.close(read)
                os.set_inheritable(write, True)  # closed when the orphan has ended
                os.execv(static, [static, big])
            os._exit(0)
        os.close(write)
        os.wait()
        os.read(read, 1)
    """)
    done = record([sys.executable, "-S", "-c", program, str(static), str(big)], tmp_path / "events")
    assert done.notes == ()
    assert unrecorded(tmp_path / "events") == [("static", 1)]


def test_what_is_told_of_others_may_be_damaged(big: Path, tmp_path: Path) -> None:
    record(["cat", str(big)], tmp_path / "events")
    for text in ("", "[]", '{"host": "h", "pid": 1, "processes": [{"child": 2}]}', "[" * 100_000):
        (tmp_path / "events" / "tree.json").write_text(text)
        table = read_events(tmp_path / "events")
        assert (table.unrecorded, [part.reason for part in table.skipped]) == ((), ["the file is damaged"])
        assert len(table.frame)


def test_what_nobody_waited_for_is_named_without_bytes(static: Path, big: Path, tmp_path: Path) -> None:
    program = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    program += "if os.fork() == 0: os.getpid(), open('/dev/null').close(), os.execv(sys.argv[1], sys.argv[1:])\n"
    program += "try: os.wait()\nexcept ChildProcessError: pass"
    done = record([sys.executable, "-S", "-c", program, str(static), str(big)], tmp_path / "events")
    assert re.fullmatch(
        r"static \(process \d+\) did not load the recorder, .* its bytes are not known", one(done.notes)
    )


def test_what_unrecorded_processes_started_is_not_counted_twice() -> None:
    def account(pid: int, rchar: int) -> ProcessIo:
        return ProcessIo(0, pid, rchar, 0, 0, 0, rchar, 0, 0, 0, 0, 0, True)

    children = [
        UnrecordedProcess(0, 1, 10, "launcher", 1_000_000, 300_000),
        UnrecordedProcess(0, 12, 13, "static", 200_000, 0),
        UnrecordedProcess(0, 1, 20, "shell", 500_000, 0),
    ]
    accounts = [account(1, 5_000_000), account(11, 300_000), account(12, 100_000), account(21, 490_000)]
    left = without_recorded(children, accounts, {1: 0, 11: 10, 12: 11, 21: 20})
    assert [(one.name, one.read_bytes, one.write_bytes) for one in left] == [
        ("launcher", 400_000, 300_000),
        ("static", 200_000, 0),
    ]


def test_a_program_that_executes_another_keeps_both(folder: Folder) -> None:
    folder.run("""
        make("f", 100)
        program = "import sys; open(sys.argv[1], 'rb', 0).read(60)"
        os.execv(sys.executable, [sys.executable, "-S", "-c", program, data + "/f"])
    """)
    table = folder.table()
    assert len(list(folder.events.glob("*.posix"))) == 2
    assert len(table.processes) == len(table.accounts) == 1
    assert table.accounts[0].complete
    assert [call[0::3] for call in folder.calls() if call[0] in ("read", "write")] == [("write", 100), ("read", 60)]


def test_what_a_child_does_with_descriptors_before_it_executes_is_its_own(folder: Folder) -> None:
    """The child of vfork (as subprocess uses it) shares memory with its parent."""
    folder.run("""
        import subprocess
        make("f")
        fd = os.open("f", os.O_RDONLY)
        with open("out", "wb") as out:
            for _ in range(3):
                subprocess.run(["cat"], stdin=fd, stdout=out, close_fds=True, check=True)
        print("to a pipe", flush=True)
        os.pread(fd, 5, 0)
    """)
    assert folder.calls()[-1] == ("pread", "f", 0, 5)
    assert not [call for call in folder.calls() if call[0] == "write" and call[3] == 10]
    table = folder.table()
    assert sorted(process.role for process in table.processes)[:3] == ["cat"] * 3


def test_a_killed_process_loses_nothing(folder: Folder) -> None:
    folder.run(
        """
        make("f")
        fd = os.open("f", os.O_RDONLY)
        for number in range(30000):
            os.pread(fd, 10, number % 9000)
        os.kill(os.getpid(), 9)
        """,
        exit_code=-signal.SIGKILL,
    )
    assert len([call for call in folder.calls() if call[0] == "pread"]) == 30_000
    account = one(folder.table().accounts)
    assert not account.complete
    assert account.rchar is not None
    assert account.rchar > 100_000  # of some moment on the way


def test_programs_may_close_what_they_find(folder: Folder) -> None:
    folder.run("""
        make("f")
        for rounds in range(4):
            fd = os.open("f", os.O_RDONLY)
            for number in range(3000):
                os.pread(fd, 10, number)
            os.closerange(3, 1024)
        r, w = os.pipe()
        assert (r, w) == (3, 4)
        os.write(w, b"abc"), os.read(r, 3)
        libc.syscall(3, r)  # close, as seldom seen
        fd = os.open("f", os.O_RDONLY)
        os.read(fd, 4)
    """)
    calls = folder.calls()
    assert len([call for call in calls if call[0] == "pread"]) == 12_000
    assert calls[-1] == ("read", "f", 0, 4)
    assert not [call for call in calls if call[0] in ("read", "write") and call[3] == 3]


READS = """
    make("f")
    fd = os.open("f", os.O_RDONLY)
    for number in range(5000):
        assert len(os.pread(fd, 10, number)) == 10
    if len(sys.argv) > 2:
        import shutil
        shutil.rmtree(sys.argv[2])
    for number in range(5000):
        assert len(os.pread(fd, 10, number)) == 10
"""


def test_the_limit_ends_the_recording_and_says_so(folder: Folder) -> None:
    folder.run(READS, limit_bytes=100_000)
    table = read_events(folder.events)
    assert 1000 < len(table.frame) < 100_000 / 48
    account = one(table.accounts)
    assert account.dropped > 8000
    assert one(table.skipped).reason == (
        f"the limit of 100000 bytes per process was reached: {account.dropped} later calls were not recorded"
    )
    assert sum(path.stat().st_size for path in folder.events.iterdir()) <= 100_000
    assert account.traced_read_bytes >= 100_000


def test_folders_that_are_missing_or_vanish_do_not_harm(folder: Folder) -> None:
    folder.run(READS, str(folder.events))
    assert not folder.events.exists()
    folder.run(READS)
    assert not folder.events.exists()
    assert len(read_events(folder.events).frame) == 0


def test_file_size_limits_do_not_harm(folder: Folder) -> None:
    folder.run(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))\n" + textwrap.dedent(READS)
    )
    assert "the event file could not grow" in one(read_events(folder.events).skipped).reason


STREAMS = """
    libc.fopen.restype = ctypes.c_void_p
    def fopen(name, mode):
        return ctypes.c_void_p(libc.fopen(name, mode))
    room = ctypes.create_string_buffer(100000)
    file = fopen(b"text", b"w+")
    for number in range(3000):
        libc.fprintf(file, b"line %d\\n", number)
    libc.fputs(b"x" * 5000, file)
    libc.fflush(file)
    libc.fseek(file, 12345, 0)
    libc.fgets(room, 100, file)
    libc.fread(room, 1, 20000, file)
    libc.fseek(file, 50, 0)
    libc.fputc(33, file)
    libc.rewind(file)
    while libc.fgets(room, 1000, file) and not room.value.startswith(b"line 2000"):
        pass
    libc.fclose(file)
    file = fopen(b"text", b"r")
    number, line, size = ctypes.c_int(), ctypes.c_char_p(), ctypes.c_size_t()
    libc.fscanf(file, b"line %d", ctypes.byref(number))
    for _ in range(2000):
        libc.getline(ctypes.byref(line), ctypes.byref(size), file)
    while libc.fgetc(file) >= 0:
        pass
    libc.freopen(b"other", b"w", file)
    libc.fwrite(room, 1, 10000, file)
    libc.fwrite(room, 1, 10, file)
    file = fopen(b"text", b"a+")
    libc.fwrite(room, 1, 77, file)
    libc.fseek(file, 0, 0)
    libc.fread(room, 1, 77, file)
    libc.setvbuf(fopen(b"plain", b"w"), None, 2, 0)
    libc.fputs(b"left to the end", fopen(b"late", b"w"))
"""


def test_buffered_streams_as_the_kernel_sees_them(folder: Folder, tmp_path: Path) -> None:
    need_strace()
    log = tmp_path / "log"
    variables = clean_environ() | preload.environment(folder.events, include=[str(folder.data)])
    strace = ["strace", "-f", "-y", "-s", "0", "-e", "trace=read,write", "-o", str(log)]
    given = [f"-E{name}={variables[name]}" for name in variables if name.startswith(("LD_PRELOAD", "DLIO_TORCH_POSIX"))]
    command = [sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(STREAMS), str(folder.data)]
    subprocess.run([*strace, *given, *command], env=clean_environ(), check=True, timeout=60)
    expected: dict[tuple[str, str], int] = {}
    for line in log.read_text().splitlines():
        if f"{folder.data}/" in line:
            key = ("read" if " read(" in line else "write", line.split(f"{folder.data}/")[1].split(">")[0])
            expected[key] = expected.get(key, 0) + int(line.rsplit("= ", 1)[1])
    found: dict[tuple[str, str], int] = {}
    for op, name, offset, size in folder.calls():
        if size > 0:
            key = ("read" if op in ("fread", "fgets", "getline") else "write", name)
            found[key] = found.get(key, 0) + size
            assert offset >= 0
    assert found == {key: size for key, size in expected.items() if size}
    assert found["write", "late"] == 15


def test_accounts_say_what_was_not_seen(folder: Folder) -> None:
    def account(program: str) -> ProcessIo:
        for path in folder.events.iterdir():
            path.unlink()
        folder.run(
            "make('f', 1 << 22)\nfd = os.open('f', os.O_RDONLY)\nroom = bytes(1 << 22)\n" + textwrap.dedent(program)
        )
        return max(folder.table().accounts, key=lambda found: found.traced_write_bytes)

    seen = account("os.pread(fd, 1 << 22, 0)")
    if seen.rchar is None:
        pytest.skip("the kernel does not count the I/O of processes")
    unseen_at_start = seen.rchar - seen.traced_read_bytes
    assert 0 <= unseen_at_start < 100_000  # what the dynamic linker and the C library read for themselves
    assert seen.wchar == seen.traced_write_bytes == 1 << 22
    assert (seen.complete, seen.mapped_bytes, seen.dropped, seen.io_uring_rings) == (True, 0, 0, 0)

    raw = account("libc.syscall(17, fd, room, 1 << 22, ctypes.c_long(0))")  # pread64 on x86_64
    if os.uname().machine == "x86_64":
        assert raw.rchar is not None
        assert abs(raw.rchar - raw.traced_read_bytes - (1 << 22) - unseen_at_start) < 50_000

    mapped = account("mmap.mmap(fd, 1 << 22, prot=mmap.PROT_READ)")
    assert mapped.mapped_bytes == 1 << 22

    # The kernel adds a child's counters to those of the parent that waits for it.
    for wait in ("os.waitpid(child, 0)", "os.wait()", "os.waitid(os.P_PID, child, os.WEXITED)", "os.wait4(-1, 0)"):
        parent = account(f"""
            child = os.fork()
            if child == 0:
                libc.syscall(17, fd, room, 1 << 22, ctypes.c_long(0))
                os._exit(3)
            {wait}
            try:
                os.wait()
            except ChildProcessError:
                pass
        """)
        assert parent.rchar is not None
        assert parent.rchar - parent.traced_read_bytes < 100_000, wait
    shell = account("assert os.system(f'cat {data}/f > /dev/null; exit 3') == 768")
    assert shell.rchar is not None
    assert shell.rchar - shell.traced_read_bytes < 100_000


def test_ranks_come_from_the_launcher(folder: Folder) -> None:
    folder.run("make('f')", variables={"RANK": "3", "SLURM_PROCID": "7"})
    folder.run("make('f')", variables={"OMPI_COMM_WORLD_RANK": "2"})
    folder.run("make('f')", rank=5, variables={"RANK": "3"})
    assert [process.rank for process in folder.table().processes] == [2, 3, 5]
    assert len(read_events(folder.events, rank=3).processes) == 1


def test_a_process_knows_whether_it_is_recorded(folder: Folder) -> None:
    environ = clean_environ() | preload.environment(folder.events)
    ask = [sys.executable, "-c", "from dlio_torch.iotrace.recorder.preload import active; print(active())"]
    assert subprocess.run(ask, env=environ, capture_output=True, text=True, check=True).stdout == "True\n"
    assert not preload.active()


def test_recording_within_a_process_that_waited_for_it(folder: Folder) -> None:
    program = """
        make("before")
        os.environ.update(zip(sys.argv[2::2], sys.argv[3::2]))
        assert libc.dlio_posix_begin() == 1
        make("during", 10)
        def child(name):
            if os.fork() == 0:
                make(name, 10)
                os._exit(0)
            os.wait()
        child("child")
        libc.dlio_posix_end()
        make("after")
        child("later")
        assert libc.dlio_posix_begin() == 0
    """
    variables = preload.environment(folder.events, include=[str(folder.data)])
    library = variables.pop("LD_PRELOAD")
    words = [word for pair in variables.items() for word in pair]
    command = [sys.executable, "-S", "-c", PRELUDE + textwrap.dedent(program), str(folder.data), *words]
    subprocess.run(command, env=clean_environ() | {"LD_PRELOAD": library}, check=True, timeout=60)
    assert [call[1:] for call in folder.calls() if call[0] == "write"] == [("during", 0, 10), ("child", 0, 10)]
    assert {account.traced_write_bytes for account in folder.table().accounts} == {10}
    assert all(account.wchar == 10 for account in folder.table().accounts)


def test_record_returns_what_the_program_returned(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100))
    done = record(["sh", "-c", f"cat {tmp_path}/f > {tmp_path}/g; exit 7"], tmp_path / "events")
    assert (done.exit_code, done.method, done.notes) == (7, "preload", ())
    assert 0 < done.runtime_s < 60
    assert abs(done.started_time_ns - time.time_ns()) < 60e9
    table = read_events(tmp_path / "events")
    assert {Path(str(name)).name for name in table.frame["file"].dropna()} >= {"f", "g"}
    assert record(["sh", "-c", "kill -9 $$"], tmp_path / "events").exit_code == 137


def test_reports_name_what_was_not_recorded(static: Path, tmp_path: Path) -> None:
    record(["sh", "-c", f"cat {static} >/dev/null; {static} {static}; true"], tmp_path / "events")
    recording = open_recording(tmp_path / "events")
    found = untraced(recording)
    assert (found["unrecorded_processes"], found["unrecorded_names"]) == (1, ["static"])
    text = io.StringIO()
    print_io(analyse(recording), text)
    assert "1 process that did not load the recorder (static)" in " ".join(text.getvalue().split())
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    write_report(recording, tmp_path / "report.html")
    assert "1 (static): " in (tmp_path / "report.html").read_text()
    assert not list((tmp_path / "events").glob(".*"))


def test_record_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PreconditionError, match="/none cannot be started"):
        record(["/none"], tmp_path / "events")
    with pytest.raises(PreconditionError, match=r"calls cannot be recorded in .*Not a directory"):
        record(["true"], Path("/dev/null/events"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreconditionError, match="strace is not installed"):
        record(["/bin/true"], tmp_path / "events", method="strace")


def test_record_says_why_nothing_was_recorded(static: Path, tmp_path: Path) -> None:
    done = record([str(static), str(static)], tmp_path / "events")
    assert done.exit_code == 0
    assert "is linked statically" in done.notes[0]
    assert "no process called" in one(record(["sleep", "0"], tmp_path / "events").notes)


def test_strace_stands_in_for_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_strace()
    (tmp_path / "f").write_bytes(bytes(100))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("strace", "cat", "true", "sh"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("CC", "/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("dlio_torch.native._candidates", _none)
    with pytest.raises(PreconditionError, match=r"no compiler.*install a C compiler"):
        record(["true"], tmp_path / "events", method="preload")
    done = record(["sh", "-c", f"cat {tmp_path}/f > {tmp_path}/g; exit 5"], tmp_path / "events")
    assert (done.exit_code, done.method) == (5, "strace")
    assert any("a hundredfold" in note for note in done.notes)
    text = "".join(path.read_text() for path in (tmp_path / "events").glob("strace.*"))
    assert f'"{tmp_path}/f"' in text


def _none(*_: object) -> Any:
    raise _unavailable()


def _unavailable() -> OSError:
    from dlio_torch.native import NativeUnavailable

    return NativeUnavailable("no compiler")


RECEIVER = """
import signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append("INT"))
signal.signal(signal.SIGTERM, lambda *_: got.append("TERM"))
open(sys.argv[1], "w").write("ready")
while len(got) < 2:
    time.sleep(0.01)
time.sleep(0.2)
open(sys.argv[1], "w").write(" ".join(got))
sys.exit(9)
"""

CALLER = """
import sys
from pathlib import Path
from dlio_torch.iotrace.recorder.record_program import record
sys.exit(record([sys.executable, "-c", sys.argv[1], sys.argv[2]], Path(sys.argv[3]), method=sys.argv[4]).exit_code)
"""


@pytest.mark.parametrize("method", ["preload", "strace"])
def test_signals_reach_the_program_once(method: str, tmp_path: Path) -> None:
    if method == "strace":
        need_strace()
    said = tmp_path / "said"
    command = [sys.executable, "-c", CALLER, RECEIVER, str(said), str(tmp_path / "events"), method]
    caller = subprocess.Popen(command, env=clean_environ())
    while not (said.exists() and said.read_text() == "ready"):
        assert caller.poll() is None
        time.sleep(0.01)
    caller.send_signal(signal.SIGINT)
    time.sleep(0.1)
    caller.send_signal(signal.SIGTERM)
    assert caller.wait(timeout=60) == 9
    assert said.read_text() == "INT TERM"
