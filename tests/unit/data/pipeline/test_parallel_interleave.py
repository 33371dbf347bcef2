"""Interleaved files that are read by threads of their own: TensorFlow's parallel_interleave."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_data import CountingFormat, configured, loaders, numbers, planned
from strace import READS, Call, need_strace, trace

from dlio_torch.config.compose import compose
from dlio_torch.data.order.access_patterns import interleaved
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline.parallel_interleave import interleaved_in_parallel
from dlio_torch.errors import ConfigError, DataError, PreconditionError
from dlio_torch.formats.core.registry import create

SOURCES = st.lists(st.lists(st.integers(), max_size=6), max_size=9)


def until(reached: Callable[[], bool]) -> None:
    """Wait for threads to come to where they wait; what they must not do is looked at afterwards."""
    end = time.monotonic() + 30
    while not reached() and time.monotonic() < end:
        time.sleep(0.001)
    assert reached()


class Files:
    """Sources that note who reads what."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.begun: dict[int, str] = {}  # the thread of each file
        self.read = [0] * len(lengths)
        self.closed: list[int] = []

    def __iter__(self) -> Iterator[Iterator[tuple[int, int]]]:
        return (self._file(number) for number in range(len(self.lengths)))

    def _file(self, number: int) -> Iterator[tuple[int, int]]:
        self.begun[number] = threading.current_thread().name
        try:
            for item in range(self.lengths[number]):
                self.read[number] += 1
                yield number, item
        finally:
            self.closed.append(number)


@settings(deadline=None, max_examples=60)
@given(SOURCES, st.integers(1, 4), st.integers(0, 5), st.integers(1, 3))
def test_the_order_is_that_of_one_thread(sources: list[list[int]], cycle: int, prefetch: int, buffer: int) -> None:
    assert list(interleaved_in_parallel(sources, cycle, prefetch, buffer)) == list(interleaved(sources, cycle))


def test_begins_all_files_at_once_each_by_a_thread_and_reads_on_to_its_buffer() -> None:
    """As traced of TensorFlow 2.21: cycle_length=10 alone opens files 0 to 29 by 30 threads, three records of each."""
    files = Files([9] * 50)
    stream = interleaved_in_parallel(files, 10, 20, 2)
    assert files.begun == {}
    assert next(stream) == (0, 0)
    until(lambda: sum(files.read) == 30 * 3 + 1)
    assert sorted(files.begun) == list(range(30))
    assert len(set(files.begun.values())) == 30
    assert files.read[:30] == [4, *[3] * 29]
    assert [next(stream) for _ in range(10)] == [*((number, 0) for number in range(1, 10)), (0, 1)]
    until(lambda: sum(files.read) == 30 * 3 + 11)
    assert files.read[:11] == [5, *[4] * 9, 3]
    assert len(files.begun) == 30
    stream.close()  # type: ignore[attr-defined]
    assert sorted(files.closed) == list(range(30))
    assert not any(thread.name.startswith("interleave") for thread in threading.enumerate())


def test_a_file_that_is_over_makes_room_for_one_that_is_begun_and_its_thread_begins_another() -> None:
    files = Files([1, 5, 5, 5, 5])
    stream = interleaved_in_parallel(files, 2, 1, 1)
    assert list(islice(stream, 2)) == [(0, 0), (1, 0)]
    until(lambda: sorted(files.begun) == [0, 1, 2])
    assert next(stream) == (1, 1)  # file 0 is over: its place waits for the next round
    until(lambda: sorted(files.begun) == [0, 1, 2, 3])
    assert files.begun[3] == files.begun[0]
    assert next(stream) == (2, 0)
    stream.close()  # type: ignore[attr-defined]


def test_the_error_of_a_file_comes_at_its_turn() -> None:
    def broken() -> Iterator[int]:
        yield 5
        raise DataError("broken")

    stream = interleaved_in_parallel([iter([1, 2, 3]), broken(), iter([7, 8, 9])], 2, 1, 2)
    assert [next(stream) for _ in range(3)] == [1, 5, 2]
    with pytest.raises(DataError, match="broken"):
        next(stream)
    assert not any(thread.name.startswith("interleave") for thread in threading.enumerate())


def test_threads_that_cannot_be_started_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []
    plain = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) == 3:
            raise RuntimeError("can't start new thread")
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(PreconditionError, match=r"cannot be started: .*lower access\.interleave or"):
        next(interleaved_in_parallel([[1]] * 9, 2, 4, 1))
    assert not any(thread.is_alive() for thread in begun)


LOADERS: dict[str, dict[str, Any]] = {
    "main": {},
    "thread": {"read_threads": 1, "prefetch_batches": 2},
    "threads": {"read_threads": 2, "prefetch_batches": 4},
    "workers": {"num_workers": 2},
}
ACCESS: dict[str, Any] = {"pattern": "stream", "partition": "files", "order": "shuffled", "shuffle_pool": 5}
ACCESS |= {"interleave": 2, "interleave_prefetch": 3, "interleave_buffer": 2}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "change", [{}, {"repeat": True}, {"unit": "file", "shuffle_pool": 0}], ids=["", "repeat", "files"]
)
def test_loaders_deliver_the_plan(name: str, change: dict[str, Any]) -> None:
    train = {"batch_size": 2, "steps": 11 if "repeat" in change else 0}
    made = loaders(configured({**ACCESS, **change}, train, LOADERS[name]), CountingFormat([5, 3, 7, 2, 6, 4, 9]))
    assert [numbers(made, epoch) for epoch in range(2)] == planned(made, 2)
    numbers(made, 1, steps=4)
    made.close()


def test_files_open_at_once_are_those_of_the_plan() -> None:
    fmt = CountingFormat([40] * 9)
    made = loaders(configured({**ACCESS, "shuffle_pool": 0}, {"batch_size": 4}), fmt)
    numbers(made, 0, steps=2)
    until(lambda: len(fmt.seen.reads) == 5 * 3 + 8)
    assert fmt.seen.most_open == 5
    made.close()


def test_what_the_threads_hold_is_known_beforehand() -> None:
    options = {"interleave": 2, "interleave_prefetch": 4, "interleave_buffer": 2}
    assert StreamPlan([99] * 9, StreamSpec(batch_size=1, pool=7, parts=3, **options)).held_samples == 3 * (7 + 6 * 3)
    assert StreamPlan([4, *[9] * 99], StreamSpec(batch_size=1, whole=True, **options)).held_samples == 6 * 9


def test_options_that_do_not_go_together() -> None:
    stream = ["recipe=minimal", "dataset=tfrecord", "access=stream", "access.interleave_prefetch=4"]
    with pytest.raises(ConfigError, match=r"set access\.interleave_buffer=2"):
        compose(stream)
    with pytest.raises(ConfigError, match=r"only access\.pattern=stream uses this option"):
        compose(["recipe=minimal", "access.interleave_buffer=2"])


# --- system calls ---

PROGRAM = """
import sys, time
from pathlib import Path
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.formats.core.registry import create
from dlio_torch.iotrace.recorder.spans import NULL
config = compose(sys.argv[1:]).config
names = sorted(path.name for path in Path("data").iterdir())
manifest = Manifest("train", 0, FileCounts([9] * len(names)), Path("data").resolve(), names, ".tfrecord")
plan = train_sampler(config, manifest, 0, 1)
stream = Loading(config, create(config.dataset, 1), NULL).source(manifest, plan, 1)
batches = iter(stream.pipes[0])
next(batches)
time.sleep(1)  # threads read as far as they may
batches.close()
"""
OPTIONS = ["recipe=minimal", "dataset=tfrecord", "dataset.num_files=40", "dataset.samples_per_file=9", "access=stream"]
OPTIONS += ["dataset.fields=[{name: x, dtype: uint8, shape: [110000]}]", "access.order=sequential", "train.steps=0"]
OPTIONS += [
    "access.partition=none",
    "train.batch_size=1",
    "dataset.tfrecord.transfer_size=256KiB",
    "access.interleave=10",
]


def test_system_calls_are_those_of_parallel_interleave(tmp_path: Path) -> None:
    """TensorFlow 2.21, traced with files of 110 kB records and ``parallel_interleave(TFRecordDataset, 10)``.

    Files 0 to 29 are opened, each by a thread of its own; each thread reads three records by two calls of 256 KiB.
    After the first record is taken, the thread of file 0 reads a fourth one, which ends in the second 256 KiB.
    """
    need_strace()
    config = compose(OPTIONS).config
    fmt = create(config.dataset, 1)
    (tmp_path / "data").mkdir()
    with ThreadPoolExecutor(1) as pool:
        for number in range(40):
            fmt.write(tmp_path / "data" / f"{number:02}.tfrecord", 9 * number, 9, pool)
    calls: dict[str, list[Call]] = {}
    command = [sys.executable, "-c", PROGRAM, *OPTIONS, "access.interleave_prefetch=20", "access.interleave_buffer=2"]
    for call in trace(command, tmp_path / "log", cwd=tmp_path, env=os.environ):
        if call.path.startswith(str(tmp_path / "data") + "/"):
            calls.setdefault(Path(call.path).stem, []).append(call)
    assert sorted(calls) == [f"{number:02}" for number in range(30)]
    assert all(len({call.tid for call in made}) == 1 for made in calls.values())
    assert len({made[0].tid for made in calls.values()}) == 30
    reads = {name: [call.result for call in made if call.name in READS] for name, made in calls.items()}
    assert list(reads.values()) == [[262144, 262144]] * 30
