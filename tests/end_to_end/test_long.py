"""Long runs: what a run holds, and what it leaves, does not grow with its steps and epochs."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from overrides import overridden
from ranks import clean_environ

from dlio_torch import cli
from dlio_torch.data.engines.sources import _wanted
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.formats.core.batch import Batch, batch_bytes
from dlio_torch.iotrace.events.budget_file import SpentBudget, budget_files, read_budget
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.events.span_format import RECORD
from dlio_torch.iotrace.recorder import preload
from dlio_torch.iotrace.recorder.budget import make_budget
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native import build
from dlio_torch.train import trainer
from dlio_torch.train.order import OrderPart
from dlio_torch.train.result import EpochFigures, EpochLog
from dlio_torch.train.steps import StepLog, read_steps

SMALL = [
    "recipe=minimal", "scale=tiny", "train.batch_size=8", "compute.step_s=0", "dataset.num_files=2",
    "dataset.fields.0.shape=[8]", "output.progress=false",
]  # fmt: skip
EPHEMERAL = ["loader.num_workers=1", "loader.prefetch_factor=1", "loader.read_threads=0"]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


# --- what a run holds -------------------------------------------------------------------------------------


@dataclass
class Looks:
    """What this process has open at the first step of each epoch."""

    steps: int = 2
    taken: int = 0
    found: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, batch: Batch) -> int:
        if self.taken % self.steps == 0:
            self.found.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        self.taken += 1
        return batch_bytes(batch)


@pytest.mark.parametrize(
    ("more", "epochs"),
    [
        (["loader=main_process", "loader.max_open_files=1"], 30),
        (["loader=threads", "loader.read_threads=2"], 30),
        (["loader=decoupled"], 30),
        (
            ["loader=main_process", "checkpoint=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.fsync=false"],
            30,
        ),
        (["loader=main_process", "dataset=tfrecord", "access=stream", "dataset.fields.0.shape=[8]"], 30),
        (EPHEMERAL, 8),
        ([*EPHEMERAL, "loader.engine=nodes"], 8),
    ],
)
def test_descriptors_and_threads_are_those_of_the_first_epochs(
    more: list[str], epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks()
    monkeypatch.setattr(trainer, "batch_bytes", looks)
    places = [f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run"]
    assert cli.main(overridden(*SMALL, *more, *places, f"train.epochs={epochs}")) == 0
    assert len(looks.found) == epochs
    # Readers may be ahead by a file or two when the trainer looks, and a thread may be about to end; what is left of
    # an epoch adds up.
    for counts in zip(*looks.found, strict=True):
        assert min(counts[-3:]) <= max(counts[:3]) + 2, counts


def test_steps_are_not_kept_in_memory(tmp_path: Path) -> None:
    def some(log: StepLog, count: int) -> None:
        for step in range(count):
            times = dict.fromkeys(("start_ns", "fetch_ns", "copy_ns", "compute_ns", "requested_ns"), step)
            log.append(1, step, 1, **times, allreduce_ns=0, checkpoint_ns=0, samples=4, bytes=100)
            if step % 100 == 99:
                log.flush()

    log = StepLog(tmp_path / "steps.csv")
    some(log, 200)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        some(log, 20_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, "20,000 records take 1.5 MB"
    assert len(log.to_array()) == 20_200
    log.close()
    assert len(read_steps(tmp_path / "steps.csv")[0]) == 20_200


@pytest.mark.parametrize(("order", "most"), [("sequential", 1), ("strided", 1), ("shuffled", 40)])
def test_what_is_read_into_memory_is_found_without_asking_for_every_epoch(order: str, most: int) -> None:
    asked = []

    class Counting(BatchSampler):
        def expected(self, epoch: int, first: int = 0) -> np.ndarray:
            asked.append(epoch)
            return super().expected(epoch, first)

    spec = SamplerSpec(order=order, batch_size=4, stride=2)  # type: ignore[arg-type]
    sampler = Counting(spec, num_samples=10)
    found = _wanted(sampler, 1_000_000)
    assert len(asked) <= most
    assert set(found) == (
        set(range(10)) if order == "shuffled" else set(sampler.batch(0, 0)) | set(sampler.batch(0, 1))
    )


# --- what a run leaves ------------------------------------------------------------------------------------


def test_the_number_of_event_files_does_not_depend_on_the_number_of_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = []
    for epochs in (6, 10):
        run = tmp_path / str(epochs)
        places = [f"dataset.root={tmp_path}/data", f"output.dir={run}"]
        words = [*SMALL, *EPHEMERAL, *places, f"train.epochs={epochs}", "trace.limit_files=8"]
        assert cli.main(words) == 0
        counts.append(len(os.listdir(run / "events")))
        [found] = summary(run)["trace"]
        assert (found["ends"], found["files"], found["limit_files"]) == (True, 8, 8)
        assert 3 <= found["last_epoch"] <= 4
        assert len(read_steps(run / "steps.csv")[0]) == 2 * epochs, "steps go on"
        assert len(summary(run)["epochs"][0]) == epochs, "counters go on"
        frame = read_events(run / "events").frame
        assert frame[frame["op"] == "fetch"]["step"].max() <= 2 * found["last_epoch"]
        said = " ".join(capsys.readouterr().out.split())
        assert f"spans and calls of rank 0 end in epoch {found['last_epoch']}" in said
    assert counts == [9, 9], "8 files and the budget"


def test_the_bytes_of_events_are_bounded(tmp_path: Path) -> None:
    run, limit = tmp_path / "run", 100_000
    places = [f"dataset.root={tmp_path}/data", f"output.dir={run}"]
    words = [*SMALL, "loader=main_process", *places, "train.epochs=150", f"trace.limit_bytes={limit}"]
    assert cli.main(words) == 0
    sizes = sum(path.stat().st_size for path in (run / "events").iterdir())
    assert sizes <= limit + 12288 + 64
    [found] = summary(run)["trace"]
    assert found["ends"]
    assert found["bytes"] <= limit
    table = read_events(run / "events")
    fetched = table.frame[table.frame["op"] == "fetch"]
    made = table.frame[table.frame["op"] == "batch"]
    assert 20 < len(fetched) < 300
    assert abs(len(fetched) - len(made)) <= 1, "the trainer's spans end where the others do"
    assert any("trace.limit_bytes" in one.reason for one in table.skipped)


def test_a_run_within_its_budget_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run"]
    assert cli.main([*SMALL, "loader=main_process", *places]) == 0
    [found] = summary(tmp_path / "run")["trace"]
    assert (found["ends"], found["last_epoch"], found["files"]) == (False, None, 2)
    assert "spans and calls of rank" not in capsys.readouterr().out
    assert read_events(tmp_path / "run" / "events").skipped == ()


# --- the budget -------------------------------------------------------------------------------------------


def record(directory: Path, count: int, kept: int = 0) -> int:
    """Record some spans, then those for which room was kept; how many of these were asked for."""
    recorder = Recorder(directory, rank=0)
    if kept:
        recorder.keep(kept)
    for number in range(count):
        recorder.add("read", number + 1, number + 2, file="a file")
    with recorder.kept():
        for number in range(kept):
            recorder.add("fetch", number + 1, number + 2)
    recorder.close()
    return kept


def test_room_that_was_kept_is_there_when_all_else_is_used_up(tmp_path: Path) -> None:
    make_budget(tmp_path, 0, 50 * 12288, 100)
    record(tmp_path, 100_000, kept=1000)
    [spent] = [read_budget(path) for path in budget_files(tmp_path)]
    assert spent is not None
    assert spent.full_ns > 0
    ops = read_events(tmp_path).frame["op"].value_counts()
    assert ops["fetch"] == 1000
    assert 5000 < ops["read"] <= 50 * 12288 // RECORD.size


def test_processes_share_a_budget(tmp_path: Path) -> None:
    make_budget(tmp_path, 0, 20 * 12288, 100)
    context = multiprocessing.get_context("fork")
    runners = [context.Process(target=record, args=(tmp_path, 5000)) for _ in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert [runner.exitcode for runner in runners] == [0, 0, 0, 0]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spans")) <= 20 * 12288
    assert sum(part.full_ns > 0 for part in map(_read, budget_files(tmp_path))) == 1
    before = len(os.listdir(tmp_path))
    record(tmp_path, 10)
    assert len(os.listdir(tmp_path)) == before, "who comes later makes no file"


def _read(path: Path) -> SpentBudget:
    found = read_budget(path)
    assert found is not None
    return found


@pytest.mark.parametrize("content", [b"", b"DLIOBUDG", b"x" * 64])
def test_a_damaged_budget_bounds_nothing_and_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank0.budget").write_bytes(content)
    record(tmp_path, 10)
    table = read_events(tmp_path)
    assert len(table.frame) == 10
    assert [(one.path.name, one.reason) for one in table.skipped] == [("rank0.budget", "the file is damaged")]


@pytest.mark.skipif(build.find_compiler() is None, reason="needs a C compiler")
def test_recorded_calls_are_taken_from_the_same_budget(tmp_path: Path, run_program: Callable[[str], None]) -> None:
    """Each program is a process of its own: the first makes its two files, the second its two, no other any."""
    make_budget(tmp_path / "events", 0, 1 << 20, 4)
    for _ in range(4):
        run_program("open('x', 'rb').read()")
    assert len(list((tmp_path / "events").glob("*.posix*"))) == 4
    [spent] = map(_read, budget_files(tmp_path / "events"))
    assert (spent.files, spent.full_ns > 0) == (4, True)


@pytest.mark.skipif(build.find_compiler() is None, reason="needs a C compiler")
def test_the_bytes_of_recorded_calls_are_bounded(tmp_path: Path, run_program: Callable[[str], None]) -> None:
    make_budget(tmp_path / "events", 0, 200_000, 100)
    run_program("for _ in range(20000): open('x', 'rb').close()")
    assert sum(path.stat().st_size for path in (tmp_path / "events").glob("*.posix*")) <= 200_000
    table = read_events(tmp_path / "events")
    assert any("all processes of the rank was reached" in one.reason for one in table.skipped)
    assert table.accounts[0].dropped > 10_000


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[[str], None]:
    (tmp_path / "x").write_bytes(b"text")
    (tmp_path / "events").mkdir()

    def run(program: str) -> None:
        environ = clean_environ() | preload.environment(tmp_path / "events", rank=0, include=[str(tmp_path / "x")])
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, check=True, timeout=120)

    return run


def test_reading_ahead_keeps_within_the_limit_of_open_files(tmp_path: Path) -> None:
    """Small samples in many files: what the decoupled engine plans at once must not need a descriptor of each."""
    program = (
        "import resource, sys\n"
        "from dlio_torch.cli import main\n"
        "from dlio_torch.data.engines.decoupled.group_plan import Planner\n"
        "plan, refused = Planner.__call__, []\n"
        "def planned(self, *batches):\n"
        "    try:\n"
        "        return plan(self, *batches)\n"
        "    except Exception as error:\n"  # its batches are then planned one by one
        "        refused.append(error)\n"
        "        raise\n"
        "Planner.__call__ = planned\n"
        "words = sys.argv[1:]\n"
        "assert main(['generate', *words, 'generate.fsync=false']) == 0\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))\n"
        "code = main(['train', *words, 'loader=decoupled', 'loader.max_open_files=8', 'verify=true'])\n"
        "sys.exit(code or (str(refused[0]) if refused else 0))\n"
    )
    words = [
        "recipe=minimal", "dataset=npy", "scale=paper", "dataset.num_files=400", "dataset.samples_per_file=2",
        "dataset.fields.0.shape=[4]", "train.epochs=1", "train.batch_size=8", "compute.step_s=0",
        f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run", "output.progress=false",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["verified_samples"] == 800


def test_figures_of_many_epochs_take_little_and_come_back() -> None:
    """A run of ten thousand epochs keeps them all, for its summary."""
    log, kept = EpochLog(), []
    for epoch in range(1, 1001):
        io = IoCounters(1 << 52, 2, 3, 4, 5, epoch) if epoch % 3 else None
        order = OrderPart(0xFFFFFFFF, 7, epoch) if epoch % 2 else None
        kept.append(EpochFigures(epoch, epoch / 7, io, None if epoch % 4 else 0.5, order, 1 + epoch % 2))
        log.append(kept[-1])
    assert list(log) == kept
    assert len(log) == 1000
    assert list(pickle.loads(pickle.dumps(log))) == kept
    assert len(pickle.dumps(log)) < 128 * 1000
