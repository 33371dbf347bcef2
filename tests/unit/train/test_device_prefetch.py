"""Batches copied to a GPU ahead of their steps: the queue with copies that are written down, and runs with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError, DataError, RunFailed
from dlio_torch.execution import training
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.train import copy_stream, to_device
from dlio_torch.train.copy_stream import CopyStream
from dlio_torch.train.device_prefetch import DevicePrefetcher
from dlio_torch.train.steps import EVAL, read_steps

Log = list[str]


def batch_of(number: int) -> dict[str, torch.Tensor]:
    return {"index": torch.tensor([number]), "x": torch.zeros(8)}


class Epoch(Iterator[dict[str, torch.Tensor]]):
    def __init__(self, loader: Loader, steps: int) -> None:
        self.steps, self._loader = steps, loader

    def read_on(self) -> None:
        self._loader.log.append("read on")

    def __next__(self) -> dict[str, torch.Tensor]:
        return self._loader.take()


class Loader:
    """A loader of numbered batches; ``plan`` gives the batch of each step, or the error in its place."""

    def __init__(self, log: Log, plan: list[int | Exception]) -> None:
        self.log, self.plan, self.number, self.first = log, plan, -1, 0
        self._batches: dict[int, dict[str, torch.Tensor]] = {}

    def __len__(self) -> int:
        return len(self.plan)

    def epoch(self, number: int) -> Epoch:
        self._step = self.first
        return Epoch(self, len(self.plan) - self.first)

    def take(self) -> dict[str, torch.Tensor]:
        batch = self.plan[self._step]
        self._step += 1
        if isinstance(batch, Exception):
            raise batch
        self.log.append(f"take {batch}")
        self.number = batch
        return self._batches.setdefault(batch, batch_of(batch))


class Copier:
    name = "a GPU"

    def __init__(self, log: Log, fails: int = -1) -> None:
        self.log, self.fails = log, fails
        self.clock = 0

    def synchronize_clocks(self) -> None:
        self.log.append("clocks")

    def start(self, batch: dict[str, torch.Tensor]) -> Copy:
        number = int(batch["index"][0])
        if number == self.fails:
            raise RunFailed("no memory", hint="")
        self.log.append(f"copy {number}")
        return Copy(self, number)


class Copy:
    def __init__(self, copier: Copier, number: int) -> None:
        self._copier, self._number = copier, number

    def finish(self) -> tuple[int, int]:
        self._copier.log.append(f"finish {self._number}")
        self._copier.clock += 10
        return self._copier.clock, self._copier.clock + 7

    def wait(self) -> None:
        self._copier.log.append(f"wait {self._number}")


def prefetcher(log: Log, plan: list[int | Exception], depth: int, fails: int = -1) -> DevicePrefetcher:
    return DevicePrefetcher(Loader(log, plan), Copier(log, fails), depth, NULL)  # type: ignore[arg-type]


def train(ahead: DevicePrefetcher, log: Log, steps: int | None = None, epoch: int = 0) -> None:
    """The trainer's loop."""
    batches = ahead.epoch(epoch)
    before = None
    for _ in range(len(ahead) if steps is None else steps):
        batch = next(batches)
        if batch is not before:
            ahead.start(batch)
            batches.read_on()
            ahead.finish()
        else:
            batches.read_on()
        log.append(f"step {ahead.number}")
        assert ahead.number == int(batch["index"][0])
        before = batch


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
def test_copies_are_started_in_order_and_as_many_steps_ahead_as_asked_for(depth: int) -> None:
    log: Log = []
    train(prefetcher(log, [0, 1, 2, 3, 4, 5], depth), log)
    for kind in ("take", "copy", "finish", "step"):
        assert [line for line in log if line.startswith(kind)] == [f"{kind} {number}" for number in range(6)]
    for number in range(6):
        before = log[: log.index(f"step {number}")]
        assert sum(line.startswith("copy") for line in before) == min(number + depth + 1, 6)
    assert log.count("read on") == 6
    assert log[0] == "clocks"


def test_one_step_in_detail() -> None:
    log: Log = []
    train(prefetcher(log, [0, 1, 2], 1), log, steps=2)
    first = ["clocks", "take 0", "take 1", "copy 0", "copy 1", "read on", "finish 0", "step 0"]
    assert log == [*first, "take 2", "copy 2", "read on", "finish 1", "step 1"]


@pytest.mark.parametrize("hold", [[2, 2, 2], [3, 3], [1, 4, 1]])
def test_a_batch_that_serves_several_steps_is_copied_once(hold: list[int]) -> None:
    log: Log = []
    plan: list[int | Exception] = [number for number, steps in enumerate(hold) for _ in range(steps)]
    train(prefetcher(log, plan, 1), log)
    assert [line for line in log if line.startswith("copy")] == [f"copy {number}" for number in range(len(hold))]
    assert [line for line in log if line.startswith("step")] == [f"step {number}" for number in plan]
    assert log.index("copy 1") < log.index("step 0")


@pytest.mark.parametrize("bad", [0, 1, 4, 5])
def test_an_error_comes_in_the_step_whose_batch_is_missing(bad: int) -> None:
    log: Log = []
    plan: list[int | Exception] = [*range(6)]
    plan[bad] = DataError("a file is damaged", hint="")
    ahead = prefetcher(log, plan, 3)
    with pytest.raises(DataError, match="a file is damaged"):
        train(ahead, log)
    assert [line for line in log if line.startswith("step")] == [f"step {number}" for number in range(bad)]
    assert f"take {bad + 1}" not in log


def test_a_copy_that_fails_ends_the_run_where_it_is_started() -> None:
    log: Log = []
    with pytest.raises(RunFailed, match="no memory"):
        train(prefetcher(log, [0, 1, 2, 3], 2, fails=3), log)
    assert log[-2:] == ["take 3", "copy 3"] or log[-1] == "take 3"


def test_an_epoch_ends_with_its_last_batch_and_the_next_one_begins_with_its_first() -> None:
    log: Log = []
    ahead = prefetcher(log, [0, 1, 2], 2)
    for epoch in range(2):
        train(ahead, log, epoch=epoch)
        with pytest.raises(StopIteration):
            ahead.take()
    assert [line for line in log if line.startswith("take")] == ["take 0", "take 1", "take 2"] * 2
    assert log.count("clocks") == 2


def test_an_epoch_that_is_left_early_waits_for_its_copies_before_their_memory_is_reused() -> None:
    log: Log = []
    ahead = prefetcher(log, [0, 1, 2, 3], 2)
    train(ahead, log, steps=1)
    del log[:]
    train(ahead, log, steps=1)
    assert log[:3] == ["wait 0", "wait 1", "wait 2"]
    assert log.index("wait 2") < log.index("take 0")
    del log[:]
    ahead.close()
    ahead.close()
    assert log == ["wait 0", "wait 1", "wait 2"]


def test_a_resumed_epoch_has_the_steps_that_are_left() -> None:
    log: Log = []
    ahead = prefetcher(log, [0, 1, 2, 3], 3)
    ahead._loader.first = 2  # type: ignore[attr-defined]
    train(ahead, log, steps=2)
    assert [line for line in log if line.startswith("take")] == ["take 2", "take 3"]
    with pytest.raises(StopIteration):
        ahead.take()


def test_an_interrupt_is_not_kept_for_later() -> None:
    ahead = prefetcher([], [0, 1, 2], 2)
    ahead._loader.take = interrupt  # type: ignore[attr-defined]
    ahead.epoch(0)
    with pytest.raises(KeyboardInterrupt):
        ahead.take()


def interrupt() -> None:
    raise KeyboardInterrupt


# --- the CUDA side ------------------------------------------------------------------------------------


class FakeCuda:
    """What a stream of copies asks of :mod:`torch.cuda`; events take 3 ms of a clock each time one is recorded."""

    def __init__(self) -> None:
        self.log: Log = []
        self.now_ms = 0.0

    def get_device_name(self, device: torch.device) -> str:
        return "Fake GPU"

    def Stream(self, device: torch.device) -> FakeStream:
        return FakeStream(self, "side")

    def current_stream(self, device: torch.device) -> FakeStream:
        return FakeStream(self, "current")

    def stream(self, stream: FakeStream) -> FakeStream:
        return stream

    def Event(self, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self)


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def __enter__(self) -> None:
        self.cuda.log.append(f"on {self.name}")

    def __exit__(self, *error: object) -> None:
        self.cuda.log.append(f"off {self.name}")

    def synchronize(self) -> None:
        self.cuda.log.append(f"synchronize {self.name}")

    def wait_event(self, event: FakeEvent) -> None:
        self.cuda.log.append(f"{self.name} waits for event of {event.ms:g} ms")


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.ms = cuda, 0.0

    def record(self, stream: FakeStream) -> None:
        self.cuda.now_ms += 3
        self.ms = self.cuda.now_ms
        self.cuda.log.append(f"record on {stream.name}")

    def synchronize(self) -> None:
        self.cuda.log.append("synchronize event")

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.ms - self.ms


class FakeTensor:
    def __init__(self, log: Log, broken: bool = False) -> None:
        self.log, self.broken = log, broken

    def to(self, device: torch.device, non_blocking: bool) -> FakeTensor:
        if self.broken:
            raise RuntimeError("CUDA out of memory.\nmore lines")
        self.log.append(f"to {device.type} non_blocking={non_blocking}")
        return self

    def record_stream(self, stream: FakeStream) -> None:
        self.log.append(f"memory is used by {stream.name}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(copy_stream.time, "perf_counter_ns", lambda: 10**9)
    return fake


def test_a_copy_is_made_on_its_stream_and_handed_over_to_the_one_that_uses_it(cuda: FakeCuda) -> None:
    stream = CopyStream(torch.device("cuda"))
    stream.synchronize_clocks()
    assert cuda.log == ["synchronize side", "record on side", "synchronize event"]
    cuda.log.clear()
    copy = stream.start({"index": FakeTensor(cuda.log), "x": FakeTensor(cuda.log)})  # type: ignore[dict-item]
    copied = ["record on side", "to cuda non_blocking=True", "record on side"]
    assert cuda.log == ["on side", *copied, "off side"]
    cuda.log.clear()
    assert copy.finish() == (10**9 + 3_000_000, 10**9 + 6_000_000)
    assert cuda.log == ["current waits for event of 9 ms", "memory is used by current", "synchronize event"]
    assert stream.name == "Fake GPU"


def test_an_error_of_a_copy_ahead_names_what_to_lower(cuda: FakeCuda) -> None:
    stream = CopyStream(torch.device("cuda"))
    with pytest.raises(RunFailed, match=r"CUDA out of memory\.; lower train\.batch_size or loader\.prefetch_to_device"):
        stream.start({"x": FakeTensor([], broken=True)})  # type: ignore[dict-item]


# --- runs ---------------------------------------------------------------------------------------------


def small_run(folder: Path, *options: str, name: str = "run") -> list[str]:
    data = ("dataset.num_files=2", "dataset.samples_per_file=6", "train.batch_size=2", "train.device=cuda")
    evaluation = ("dataset.num_files_eval=1", "dataset.samples_per_file_eval=4", "train.eval_every_epochs=1")
    folders = (f"dataset.root={folder}/data", f"output.dir={folder}/{name}")
    return ["recipe=minimal", *data, *evaluation, *folders, "train.epochs=2", *options]


class InStep:
    """Copies of evaluation batches."""

    name = "a GPU"

    def __init__(self, device: object) -> None:
        self.batches = 0

    def start(self, batch: object) -> None:
        self.batches += 1

    def finish(self) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Log, list[InStep]]]:
    """A machine with a GPU, as far as a run sees it; returns the log of the copies ahead, and the others."""
    log: Log = []
    in_step: list[InStep] = []
    monkeypatch.setattr(to_device, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "use_gpu", lambda local_rank: "a device")
    monkeypatch.setattr(training, "DeviceCopies", lambda device: in_step.append(InStep(device)) or in_step[-1])
    monkeypatch.setattr(training, "CopyStream", lambda device: Copier(log))
    return lambda: (log, in_step)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("access.hold_steps=2", "train.steps=6"),
        ("access.order=shuffled", "loader.read_threads=1"),
        ("dataset=hdf5", "loader.engine=decoupled"),
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_a_run_trains_every_batch_once_with_copies_ahead(
    tmp_path: Path,
    pretended: Callable[[], tuple[Log, list[InStep]]],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    assert cli.main(small_run(tmp_path, "loader.prefetch_to_device=2", "verify=true", *options)) == 0
    log, in_step = pretended()
    steps = read_steps(tmp_path / "run" / "steps.csv")[0]
    trained = steps[steps["phase"] != EVAL]
    hold = 2 if "access.hold_steps=2" in options else 1
    copies = len(trained) // hold
    assert sum(line.startswith("copy") for line in log) == sum(line.startswith("finish") for line in log) == copies
    assert in_step[0].batches == (steps["phase"] == EVAL).sum() > 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    ahead = summary["copies_ahead"]
    assert (ahead["batches"], ahead["bytes"]) == (copies, trained["bytes"].sum() // hold)
    assert ahead["duration_s"]["median"] == pytest.approx(7e-9)
    assert summary["copies"] is None
    assert summary["gpu"] == "a GPU"
    spans = read_events(tmp_path / "run" / "events").frame
    recorded = spans[spans["op"] == "copy_ahead"]
    assert recorded["bytes"].sum() == ahead["bytes"]
    assert not set(recorded["tid"]) & set(spans[spans["op"] == "fetch"]["tid"])
    printed = capsys.readouterr()
    assert "copies ahead" in printed.out
    assert "do not overlap with compute; loader.pin_memory=true" in printed.out + printed.err


def test_a_resumed_run_goes_on_with_the_batch_after_the_last_trained_one(
    tmp_path: Path, pretended: Callable[[], tuple[Log, list[InStep]]]
) -> None:
    saved = ("checkpoint.layout=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.every_steps=8")
    options = ("loader.prefetch_to_device=3", "access.order=shuffled", *saved)
    assert cli.main(small_run(tmp_path, *options)) == 0
    first = json.loads((tmp_path / "run" / "summary.json").read_text())
    resumed = small_run(tmp_path, *options, f"train.resume={tmp_path}/run", name="again")
    assert cli.main(resumed) == 0
    steps = read_steps(tmp_path / "again" / "steps.csv")[0]
    trained = steps[steps["phase"] != EVAL]
    assert list(zip(trained["epoch"].tolist(), trained["step"].tolist(), strict=True)) == [
        (2, 3),
        (2, 4),
        (2, 5),
        (2, 6),
    ]
    again = json.loads((tmp_path / "again" / "summary.json").read_text())
    assert again["copies_ahead"]["batches"] == 4
    assert again["resumed"]["step"] == 2
    assert first["copies_ahead"]["batches"] == 12


def test_copies_ahead_need_batches_that_are_copied() -> None:
    with pytest.raises(ConfigError, match=r"loader\.prefetch_to_device=2.*train\.device=cpu.*set train\.device=cuda"):
        compose(["recipe=minimal", "loader.prefetch_to_device=2"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(small_run(tmp_path, "loader.prefetch_to_device=2")) == 3
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("dlio_torch: error: train.device=cuda needs a GPU")
    assert "loader.prefetch_to_device=2 out" in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("pinned", ["false", "true"])
def test_batches_reach_a_real_gpu_ahead_of_their_step(
    tmp_path: Path, pinned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = CopyStream(torch.device("cuda", 0))
    stream.synchronize_clocks()
    batches = [{"x": torch.full((1 << 16,), float(number))} for number in range(4)]
    if pinned == "true":
        batches = [{"x": batch["x"].pin_memory()} for batch in batches]
    copies = [stream.start(batch) for batch in batches]
    times = [copy.finish() for copy in copies]
    for number, copy in enumerate(copies):
        np.testing.assert_array_equal(copy.tensors[0].cpu(), batches[number]["x"])
    assert all(begin <= end for begin, end in times)
    assert times == sorted(times)
    options = ("loader.prefetch_to_device=2", f"loader.pin_memory={pinned}", "compute.mode=cuda", "compute.step_s=2ms")
    assert cli.main(small_run(tmp_path, *options)) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["copies_ahead"]["batches"] == 12
    assert summary["copies_ahead"]["bytes_per_s"] > 0
    assert "copies ahead" in capsys.readouterr().out
