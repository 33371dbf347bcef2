"""Reads by io_uring: what a mover promises, under sanitizers, after a fork, and where the system refuses rings."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import compiled
from rings import needs_uring, without_uring

from dlio_torch.formats.core.direct_file import BLOCK
from dlio_torch.native.extents import ExtentError
from dlio_torch.native.uring import UringMover

SOURCE = Path(__file__).parents[2] / "support" / "uring_program.c"
SIZE = 300_007


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray[Any, Any]]:
    """A file, and its bytes."""
    path = tmp_path_factory.mktemp("uring") / "file"
    made = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    path.write_bytes(made.tobytes())
    return path, made


def filled(mover: UringMover, descriptor: int, extents: list[tuple[int, int]], request: int) -> bytes:
    """The bytes of extents (offset, length), read to memory one after the other."""
    offsets, lengths = (np.array(column, np.int64) for column in zip(*extents, strict=True))
    memory = np.frombuffer(mmap.mmap(-1, int(lengths.sum()) + 1), np.uint8)
    to = memory.__array_interface__["data"][0] + np.cumsum(lengths) - lengths
    mover.read(np.full(len(extents), descriptor, np.int32), offsets, lengths, to, request)
    return memory[:-1].tobytes()


@needs_uring
@given(
    cuts=st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), min_size=1, max_size=30),
    depth=st.integers(1, 40),
    request=st.integers(1, SIZE),
    direct=st.booleans(),
)
@settings(max_examples=60)
def test_extents_equal_preads(
    content: tuple[Path, Any], cuts: list[tuple[int, int]], depth: int, request: int, direct: bool
) -> None:
    extents = sorted((min(cut), max(cut) - min(cut)) for cut in cuts)
    direct = direct and permits_direct(content[0].parent)
    descriptor = os.open(content[0], os.O_RDONLY | (os.O_DIRECT if direct else 0))
    plain = os.open(content[0], os.O_RDONLY)
    mover = UringMover(depth, BLOCK if direct else 0)
    got = filled(mover, descriptor, extents, request)
    assert got == b"".join(os.pread(plain, length, offset) for offset, length in extents)
    os.close(descriptor)
    os.close(plain)


@needs_uring
@pytest.mark.parametrize("problem", ["folder", "write only", "not open"])
def test_what_the_system_says_is_passed_on(problem: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    path, flags = (tmp_path, os.O_RDONLY) if problem == "folder" else (tmp_path / "file", os.O_WRONLY)
    descriptor = -1 if problem == "not open" else os.open(path, flags)
    with pytest.raises(ExtentError) as caught:
        filled(UringMover(4), descriptor, [(0, 10), (50, 5)], 100)
    assert (caught.value.extent, caught.value.got) == (0, 0)
    assert caught.value.errno == (errno.EISDIR if problem == "folder" else errno.EBADF)
    if descriptor >= 0:
        os.close(descriptor)


@needs_uring
def test_the_first_bad_extent_is_named_and_the_ring_reads_on(content: tuple[Path, Any]) -> None:
    mover, made = UringMover(8), content[1].tobytes()
    with content[0].open("rb") as file:
        extents = [(low, 100) for low in range(0, 20_000, 1000)]
        bad = [*extents[:7], (SIZE - 30, 100), (SIZE + 5, 7), *extents[7:]]
        for _ in range(3):
            with pytest.raises(ExtentError) as caught:
                filled(mover, file.fileno(), bad, 50)
            assert (caught.value.extent, caught.value.got, caught.value.errno) == (7, 30, None)
            assert filled(mover, file.fileno(), extents, 50) == b"".join(made[low : low + 100] for low, _ in extents)


@needs_uring
def test_threads_and_forked_processes_have_rings_of_their_own(content: tuple[Path, Any]) -> None:
    mover, made = UringMover(8), content[1].tobytes()
    extents = [(low, 999) for low in range(0, SIZE - 999, 999)]
    want = b"".join(made[low : low + length] for low, length in extents)
    results: list[bytes] = []
    with content[0].open("rb") as file:

        def read() -> None:
            results.extend(filled(mover, file.fileno(), extents, 4000) for _ in range(5))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        read()
        for thread in threads:
            thread.join()
        assert results == [want] * 20
        child = os.fork()
        if child == 0:
            os._exit(int(filled(mover, file.fileno(), extents, 4000) != want))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert filled(mover, file.fileno(), extents, 4000) == want  # the child has not closed this one


@needs_uring
def test_rings_are_closed_with_their_threads(content: tuple[Path, Any]) -> None:
    mover = UringMover(8)

    def rings() -> int:
        targets = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
        return sum("io_uring" in target for target in targets)

    gc.collect()  # rings of other tests
    before = rings()
    with content[0].open("rb") as file:
        for _ in range(5):
            thread = threading.Thread(target=filled, args=(mover, file.fileno(), [(0, 10)], 10))
            thread.start()
            thread.join()
    assert rings() == before


@needs_uring
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_no_sanitizer_complains(sanitizers: str, tmp_path: Path) -> None:
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    (tmp_path / "nothing.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run([compiled(tmp_path / "nothing.c", tmp_path / "nothing", *flags)], check=False).returncode:
        pytest.skip(f"programs with {flags[0]} do not start here")
    program = compiled(SOURCE, tmp_path / "program", *flags)
    for direct in (False, True) if permits_direct(tmp_path) else (False,):
        done = subprocess.run(
            [program, tmp_path / "file", str(int(direct)), "3", "60"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "180\n", "")


def permits_direct(folder: Path) -> bool:
    """Whether the file system of a folder permits direct reads."""
    (folder / "probe").write_bytes(bytes(BLOCK))
    try:
        os.close(os.open(folder / "probe", os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


REASONS = {
    errno.EPERM: "a container or a security policy forbids it (EPERM)",
    errno.ENOSYS: "this system does not have it, or a sandbox hides it (ENOSYS)",
    errno.ENOMEM: "the system has no room for its memory (ENOMEM; see ulimit -l)",
}


@needs_uring
@pytest.mark.parametrize("number", REASONS)
def test_a_refusal_is_said_in_words(number: int, tmp_path: Path) -> None:
    program = "from dlio_torch.native.uring import uring_refusal\nprint(uring_refusal(8))"
    assert without_uring(number, program, [], tmp_path).stdout == f"{REASONS[number]}\n"


def test_without_native_code_it_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    from dlio_torch import native
    from dlio_torch.native import uring

    def unavailable(name: str) -> None:
        raise native.NativeUnavailable("no C compiler")

    uring.uring_refusal.cache_clear()
    monkeypatch.setattr(native, "open_library", unavailable)
    assert uring.uring_refusal(8) == "it is used by native code, and there is none: no C compiler"
    uring.uring_refusal.cache_clear()
