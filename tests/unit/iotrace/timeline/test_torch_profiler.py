from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.iotrace.timeline.chrome_trace import write_trace
from dlio_torch.iotrace.timeline.torch_profiler import FETCH, ProfilerSession


class Slow(Dataset[torch.Tensor]):
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.recorder.span("read", file="größe.h5", offset=index):
            time.sleep(0.002)
            return torch.full((10,), float(index))


def profile(tmp_path: Path, *, steps: int = 6, warmup: int = 2, active: int = 3, workers: int = 0) -> ProfilerSession:
    recorder = Recorder(tmp_path / "events", 4)
    loader: DataLoader[Any] = DataLoader(Slow(recorder), num_workers=workers, multiprocessing_context=None)
    session = ProfilerSession(
        tmp_path / "tb", "rank4", warmup=warmup, active=active, rank=4, events=tmp_path / "events"
    )
    batches = iter(loader)
    with session:
        for step in range(steps):
            with session.fetch(), recorder.span("fetch", step=step):
                batch = next(batches)
            with session.annotate("compute"):
                batch.sum()
            session.step()
    return session


def load(session: ProfilerSession) -> list[dict[str, Any]]:
    assert session.trace is not None
    with gzip.open(session.trace) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def test_the_steps_after_the_warm_up_are_recorded_and_no_others(tmp_path: Path) -> None:
    session = profile(tmp_path, steps=7, warmup=2, active=3)
    events = load(session)
    assert [event["name"] for event in events if event["name"].startswith("ProfilerStep#")] == [
        "ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4",
    ]  # fmt: skip
    for name in (FETCH, "compute"):
        found = [event for event in events if event["name"] == name]
        assert [event["cat"] for event in found] == ["cpu_op"] * 3
    assert session.trace is not None
    assert session.trace.name.startswith("rank4.")
    assert session.trace.name.endswith(".pt.trace.json.gz")
    assert [path.name for path in session.trace.parent.iterdir()] == [session.trace.name]


def test_torch_s_own_loader_marks_become_operators_too(tmp_path: Path) -> None:
    marks = [event for event in load(profile(tmp_path)) if "_SingleProcessDataLoaderIter" in event["name"]]
    assert {event["cat"] for event in marks} == {"cpu_op"}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_spans_of_workers_and_trainer_within_the_steps_are_added(tmp_path: Path) -> None:
    session = profile(tmp_path, workers=1)
    events = load(session)
    table = read_events(tmp_path / "events")
    trainer, worker = table.processes
    assert (trainer.role, worker.role) == ("trainer", "loader worker 0")
    titles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert titles[worker.pid] == f"rank 4 loader worker 0 ({worker.pid})"
    spans = [event for event in events if event.get("cat") == "app"]
    assert {event["name"] for event in spans} <= {"read", "fetch"}
    fetches = [event for event in spans if event["name"] == "fetch"]
    assert [event["args"]["step"] for event in fetches] == [2, 3, 4]
    # On one clock: each span lies inside torch's own interval around the same code.
    own = sorted((event for event in events if event["name"] == FETCH), key=lambda event: float(event["ts"]))
    for inner, outer in zip(fetches, own, strict=True):
        assert inner["pid"] == outer["pid"] == trainer.pid
        assert inner["tid"] != outer["tid"]
        assert outer["ts"] - 200 <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 200


def test_the_merged_trace_takes_the_profile_in(tmp_path: Path) -> None:
    session = profile(tmp_path)
    assert session.trace is not None
    write_trace(read_events(tmp_path / "events"), tmp_path / "t.gz", profiler_traces=[session.trace])
    with gzip.open(tmp_path / "t.gz") as file:
        names = [event["name"] for event in json.load(file)["traceEvents"]]
    assert names.count("fetch") == 6
    assert names.count("aten::sum") >= 3


def test_too_few_steps_leave_no_file(tmp_path: Path) -> None:
    session = profile(tmp_path, steps=2, warmup=2)
    assert session.trace is None
    assert not (tmp_path / "tb").exists()


def test_a_loop_that_fails_leaves_what_was_recorded(tmp_path: Path) -> None:
    session = ProfilerSession(tmp_path, "rank0", warmup=1, active=10)

    def loop() -> None:
        with session:
            for step in range(5):
                with session.fetch():
                    if step == 3:
                        raise RuntimeError("broken")
                session.step()

    with pytest.raises(RuntimeError, match="broken"):
        loop()
    assert len([event for event in load(session) if event["name"] == FETCH]) == 3


def test_off_it_does_nothing_and_does_not_import_torch(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from dlio_torch.iotrace.timeline.torch_profiler import ProfilerSession\n"
        "with ProfilerSession(pathlib.Path(sys.argv[1]) / 'tb', 'w', enabled=False) as session:\n"
        "    with session.fetch(), session.annotate('x'):\n"
        "        session.step()\n"
        "assert session.trace is None\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []
