"""Folders of fewer or more samples than recorded: the shape of requests and their reuse stay, the amount changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from io_events import examples
from recorded_requests import CLOSE, OPEN, PREAD, READ, SEEK, recordings, records, requests_of, temporary_archive

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.extents.folder_plan import EVALUATION, FolderPlan, plan_folder
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.extents.requests import PAGE, RequestCall, Requests, check_requests
from dlio_torch.formats.testing.contract import check_batch, read, write

COLUMNS = ("request_call", "request_file", "request_offset", "request_bytes")
Call = tuple[int, int, int, int]


def rows_of(requests: Requests, sample: int) -> list[Call]:
    low, high = requests.sample_first[sample : sample + 2]
    return list(zip(*(getattr(requests, name)[low:high].tolist() for name in COLUMNS), strict=True))


def recorded_rows(recorded: Requests, plan: FolderPlan, first: int, sample: int) -> tuple[list[Call], list[Call]]:
    """Requests of a sample of a folder, and the recorded ones with the numbers of the folder's files."""
    copy, row = divmod(first + sample, recorded.num_samples)
    part = next(part for part in plan.parts if part.copy == copy)
    numbers = {file: part.first_file + number for number, file in enumerate(part.files.tolist())}
    before = [(call, numbers[file], offset, size) for call, file, offset, size in rows_of(recorded, row)]
    return rows_of(plan.requests, sample), before


@examples(recordings(), st.integers(0, 9), st.integers(1, 9))
def test_requests_keep_their_shape_and_their_reuse(recorded: Requests, first: int, count: int) -> None:
    plan = plan_folder(recorded, first, count)
    check_requests(plan.requests, "plan")
    assert plan.requests.num_samples == count
    reads: list[tuple[Call, Call]] = []
    for sample in range(count):
        now, before = recorded_rows(recorded, plan, first, sample)
        assert [(call, file, size) for call, file, _, size in now] == [
            (call, file, size) for call, file, _, size in before
        ]
        some = [(a, b) for a, b in zip(before, now, strict=True) if a[3]]
        assert all((a[2] - b[2]) % PAGE == 0 and b[2] <= a[2] for a, b in some)
        reads += some
    for before_and_now in reads:
        for other in reads:
            if before_and_now[0][1] == other[0][1]:
                check_pair(before_and_now, other)


def check_pair(first: tuple[Call, Call], second: tuple[Call, Call]) -> None:
    """Two reads of a file: they share the same bytes as recorded, and lie in the same order."""
    (before, now), (other_before, other_now) = first, second
    apart = before[2] + before[3] <= other_before[2]
    if apart:
        assert now[2] + now[3] <= other_now[2]
        if before[2] + before[3] == other_before[2]:
            assert now[2] + now[3] == other_now[2]
    elif other_before[2] < before[2] + before[3] and before[2] < other_before[2] + other_before[3]:
        assert other_now[2] - now[2] == other_before[2] - before[2]


@examples(recordings(), st.integers(1, 3))
def test_whole_copies_are_the_recording(recorded: Requests, copies: int) -> None:
    plan = plan_folder(recorded, 0, copies * recorded.num_samples)
    files = len(recorded.file_bytes)
    assert plan.requests.file_bytes.tolist() == recorded.file_bytes.tolist() * copies
    for sample in range(copies * recorded.num_samples):
        now, before = recorded_rows(recorded, plan, 0, sample)
        assert now == before
    assert plan.requests.start_first[1] == copies * recorded.start_first[1]
    assert [part.first_file for part in plan.parts] == [files * copy for copy in range(copies)]


@pytest.mark.parametrize("gap", [0, 400])
def test_a_shared_file_shrinks_with_its_samples(gap: int) -> None:
    size, samples = 600, 1000
    whole = [[(PREAD, 0, (size + gap) * i, size)] for i in range(samples)]
    recorded = requests_of([(size + gap) * samples], whole)
    for count in (1, 50, 500, 1000):
        plan = plan_folder(recorded, 0, count)
        assert abs(plan.file_bytes - (size + gap) * count) <= 2 * PAGE, count
        assert plan.file_bytes >= size * count


def test_files_of_left_out_samples_are_left_out_with_what_is_read_of_them_before() -> None:
    samples = [[(OPEN, 1 + i, 0, 0), (READ, 1 + i, 0, 5000 + i), (CLOSE, 1 + i, 0, 0)] for i in range(10)]
    start = [(OPEN, 0, 0, 0), (READ, 0, 0, 3000), *[(RequestCall.STAT, 1 + i, 0, 0) for i in range(10)]]
    recorded = requests_of([9000, *[5000 + i for i in range(10)]], samples, start)
    plan = plan_folder(recorded, 3, 2)
    assert plan.requests.file_bytes.tolist() == [9000, 5003, 5004]
    assert plan.requests.start_first.tolist() == [0, 4]
    assert plan.requests.request_file[:4].tolist() == [0, 0, 1, 2]
    assert [row[:2] for row in rows_of(plan.requests, 1)] == [(OPEN, 2), (READ, 2), (CLOSE, 2)]


def test_requests_that_open_files_go_with_their_files() -> None:
    opening = [[(OPEN, i, 0, 0), (READ, i, 0, 10 + i)] for i in range(3)]
    recorded = requests_of([100] * 3, [[(PREAD, i, 50, 50)] for i in range(3)], opening=opening)
    plan = plan_folder(recorded, 2, 2).requests  # the last of a copy, and the first of the next
    assert plan.file_first.tolist() == [0, 2, 4]
    assert plan.request_bytes[:4].tolist() == [0, 12, 0, 10]
    assert plan.request_file.tolist() == [0, 0, 1, 1, 0, 1]


def test_maps_cover_what_is_used_of_them() -> None:
    samples = [[(RequestCall.TOUCH, 0, 10_000 * i, 10_000)] for i in range(30)]
    start = [(OPEN, 0, 0, 0), (RequestCall.MMAP, 0, 0, 300_000), (CLOSE, 0, 0, 0)]
    plan = plan_folder(requests_of([300_000], samples, start), 4, 2)
    size = plan.file_bytes
    assert 20_000 <= size < 40_000
    assert plan.requests.request_bytes[1] == size
    assert all(offset + 10_000 <= size for _, _, offset, _ in (rows_of(plan.requests, i)[0] for i in range(2)))


def test_the_end_of_a_file_stays_its_end() -> None:
    samples = [[(SEEK, 0, 8000 * i, 0), (READ, 0, 8000 * i, 8000), (PREAD, 0, 80_000, 0)] for i in range(10)]
    plan = plan_folder(requests_of([80_000], samples), 2, 3)
    for sample in range(3):
        assert rows_of(plan.requests, sample)[2][2] == plan.file_bytes < 40_000


@examples(recordings(), st.integers(0, 9), st.integers(1, 9), count=25)
def test_folders_of_any_scale_are_read_as_generated(recorded: Requests, first: int, count: int) -> None:
    import tempfile

    config = DatasetConfig(format="extents", extents=ExtentsConfig(temporary_archive(recorded)))
    fmt = create(config, 3)
    with tempfile.TemporaryDirectory() as folder:
        for begin in (first, EVALUATION + first):
            path = write(fmt, Path(folder, f"{begin}.extents"), begin, count)
            assert fmt.inspect(path).num_samples == count
            with closing(fmt.open(path)) as reader:
                order = np.random.default_rng(first).permutation(count).tolist()
                check_batch(fmt, read(fmt, reader, order), [begin + row for row in order])


def test_copies_and_evaluations_have_content_of_their_own() -> None:
    fmt = create(DatasetConfig(format="extents", extents=ExtentsConfig(temporary_archive(records(3, 64)))), 3)
    contents = [fmt.expected(sample)["data"].tobytes() for sample in (0, 1, 2, 3, 6, EVALUATION, EVALUATION + 3)]
    assert len(set(contents)) == len(contents)
    sizes = [len(content) for content in contents]
    assert all(a == b for a, b in pairwise(sizes))


def test_pieces_of_a_file_are_written_by_any_number_of_threads(tmp_path: Path) -> None:
    recorded = requests_of([3 << 20, 0], [[(PREAD, 0, (i * 7 % 32) << 16, 1 << 16)] for i in range(32)])
    fmt = create(DatasetConfig(format="extents", extents=ExtentsConfig(temporary_archive(recorded))), 3)
    for threads in (1, 5):
        with ThreadPoolExecutor(threads) as pool:
            fmt.write(tmp_path / str(threads), 5, 40, pool)
    names = sorted(str(path.relative_to(tmp_path / "1")) for path in (tmp_path / "1").rglob("*") if path.is_file())
    assert len(names) == 5
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "5" / name).read_bytes()
