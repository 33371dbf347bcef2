"""The pool of C threads: what comes to memory, how jobs end, and what becomes of threads and blocks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.native import NativeUnavailable
from dlio_torch.native.memory import address_of
from dlio_torch.native.read_core import COPIES, EXTENTS, TOO_SHORT, ReadCore, Report
from dlio_torch.storage.local.eviction import evict
from dlio_torch.storage.local.page_cache import cached_share

SIZE = 3 << 20
WAIT_S = 120.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("core") / "data"
    path.write_bytes(np.random.default_rng(3).bytes(SIZE))
    return path


@pytest.fixture
def core() -> Iterator[ReadCore]:
    opened = open_core(2)
    yield opened
    opened.close()


def open_core(threads: int, request: int = 1 << 20) -> ReadCore:
    try:
        return ReadCore(threads, request)
    except NativeUnavailable as error:
        pytest.skip(str(error))


class Extents:
    """A job that reads extents of one file to memory, one after another."""

    def __init__(self, descriptor: int, extents: list[tuple[int, int]], turned: int = 0) -> None:
        self.offsets = np.array([offset for offset, _ in extents], np.int64)
        self.lengths = np.array([length for _, length in extents], np.int64)
        self.to = np.cumsum(self.lengths) - self.lengths
        self.descriptors = np.full(len(extents), descriptor, np.int32)
        self.turned = np.full(len(extents), turned, np.int64)
        self.memory = np.zeros(max(1, int(self.lengths.sum())), np.uint8)
        arrays = self.descriptors, self.offsets, self.lengths, self.to
        self.row = np.array(
            [EXTENTS, len(extents), *map(address_of, arrays), address_of(self.turned) if turned else 0, 0], np.int64
        )

    def submit(self, core: ReadCore, base: int | None = None, **options: Any) -> int:
        base = address_of(self.memory) if base is None else base
        return core.submit(address_of(self.row), 1, base, self, **options)


def ended(core: ReadCore, job: int) -> Report | None:
    assert core.wait([job], WAIT_S) == job
    return core.finish(job)[1]


EXTENT = st.tuples(st.integers(0, SIZE - 1), st.integers(0, 1 << 19) | st.integers(0, SIZE))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EXTENT, min_size=1, max_size=40), st.sampled_from([4096, 60_000, 1 << 20]), st.integers(1, 4))
def test_reads_what_lies_there(data: Path, extents: list[tuple[int, int]], request: int, threads: int) -> None:
    core = open_core(threads, request)
    content = data.read_bytes()
    cut = [(offset, min(length, SIZE - offset)) for offset, length in extents]
    with data.open("rb") as file:
        jobs = [Extents(file.fileno(), cut[low:]) for low in range(0, len(cut), 7)]
        handles = [job.submit(core) for job in jobs]
        for job, handle in zip(jobs, handles, strict=True):
            assert ended(core, handle) is None
            want = b"".join(content[o : o + n] for o, n in zip(job.offsets, job.lengths, strict=True))
            assert job.memory[: len(want)].tobytes() == want
    core.close()


def test_elements_of_the_other_byte_order_are_turned(data: Path, core: ReadCore) -> None:
    with data.open("rb") as file:
        job = Extents(file.fileno(), [(8, 2 << 20), (3, 800)], turned=4)
        assert ended(core, job.submit(core)) is None
    content = data.read_bytes()
    want = [np.frombuffer(content, ">u4", n // 4, o).astype("<u4").tobytes() for o, n in [(8, 2 << 20), (3, 800)]]
    assert job.memory.tobytes() == b"".join(want)


def test_copies(core: ReadCore) -> None:
    source, to = np.arange(100, dtype=np.uint8), np.zeros(10, np.uint8)
    sources, lengths, into = address_of(source) + np.array([50, 7]), np.array([4, 6]), np.array([6, 0])
    row = np.array([COPIES, 2, 0, *map(address_of, (sources, lengths, into)), 0, 0], np.int64)
    assert ended(core, core.submit(address_of(row), 1, address_of(to), (source, sources, lengths, into))) is None
    assert to.tolist() == [7, 8, 9, 10, 11, 12, 50, 51, 52, 53]


def test_a_job_says_which_item_failed(data: Path, core: ReadCore, tmp_path: Path) -> None:
    with data.open("rb") as file:
        cut = Extents(file.fileno(), [(0, 10), (SIZE - 5, 9), (20, 10)])
        report = ended(core, cut.submit(core))
        assert report is not None
        assert (report.result, report.item, report.got) == (TOO_SHORT, 1, 5)
        long = Extents(file.fileno(), [(SIZE // 2, SIZE)])  # of which several threads read parts
        report = ended(core, long.submit(core))
        assert report is not None
        assert (report.result, report.item) == (TOO_SHORT, 0)
    with (tmp_path / "written").open("wb") as other:
        report = ended(core, Extents(other.fileno(), [(0, 10)]).submit(core))
    assert report is not None
    assert (report.result, report.item, report.got) == (errno.EBADF, 0, 0)


def test_the_block_that_came_last_is_filled_first(data: Path, core: ReadCore) -> None:
    cold, warm = np.zeros(100, np.uint8), np.zeros(100, np.uint8)
    with data.open("rb") as file:
        job = Extents(file.fileno(), [(5, 100)])
        core.give(address_of(cold))
        for _ in range(3):
            core.give(address_of(warm))
            assert core.spare() == 2
            handle = job.submit(core, base=0)
            assert core.wait([handle], WAIT_S) == handle
            assert core.finish(handle) == (address_of(warm), None)
            assert core.spare() == 1
    assert warm.tobytes() == data.read_bytes()[5:105]
    assert not cold.any()


def test_parts_are_recorded(data: Path, core: ReadCore) -> None:
    with data.open("rb") as file:
        report = ended(core, Extents(file.fileno(), [(0, SIZE)]).submit(core, recorded=True))
    assert report is not None
    uses = report.uses
    assert (report.result, int(uses[:, 2].sum())) == (0, SIZE)
    assert len(uses) == 3
    assert set(uses[:, 3].tolist()) <= set(core.thread_numbers)
    assert (uses[:, 5] >= uses[:, 4]).all()


def test_cancelled_jobs_are_complete(data: Path, core: ReadCore) -> None:
    with data.open("rb") as file:
        jobs = [Extents(file.fileno(), [(0, SIZE)]) for _ in range(20)]
        handles = [job.submit(core) for job in jobs]
        kept: list[Any] = []
        assert core.cancel(lambda job, _: kept.append(job), WAIT_S)
    assert len(kept) == len(handles)
    assert set(map(id, kept)) == set(map(id, jobs))


def test_waits_for_whichever_job_is_complete(data: Path, core: ReadCore) -> None:
    with data.open("rb") as file:
        handles = [Extents(file.fileno(), [(0, 1000)]).submit(core) for _ in range(5)]
        left = set(handles)
        while left:
            job = core.wait(sorted(left), WAIT_S)
            assert job is not None
            core.finish(job)
            left.remove(job)


def test_threads_have_names_and_end() -> None:
    core = open_core(3)
    numbers = core.thread_numbers
    names = [Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in numbers]
    assert names == ["reader 0", "reader 1", "reader 2"]
    core.close()
    core.close()
    assert core.thread_numbers == []
    assert not {str(number) for number in numbers} & set(os.listdir("/proc/self/task"))


def test_a_forked_process_has_no_threads_and_ends(data: Path, core: ReadCore) -> None:
    with data.open("rb") as file:
        job = Extents(file.fileno(), [(0, SIZE)]).submit(core)
        pid = os.fork()
        if pid == 0:
            core.close()
            os._exit(7 if core.thread_numbers == [] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert ended(core, job) is None


@pytest.mark.parametrize(("missing", "cold"), [(0, False), (7, False), (8, True)])
def test_the_cache_is_cold_if_an_eighth_of_the_requests_are_not_in_it(
    missing: int, cold: bool, core: ReadCore, tmp_path: Path
) -> None:
    each, count = 1 << 16, 64
    path = tmp_path / "data"
    path.write_bytes(bytes(each * count))
    evict(path)
    if cached_share(path) != 0.0:
        pytest.skip("this file system keeps files in memory, or does not tell")
    offsets = [number * each for number in range(count)]
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        for number, offset in enumerate(offsets):
            if number % 8 or number // 8 >= missing:
                os.pread(file.fileno(), 4096, offset)
        job = Extents(file.fileno(), [(offset, 4096) for offset in offsets])
        report = ended(core, job.submit(core))
    assert (report is not None and report.cold) == cold
