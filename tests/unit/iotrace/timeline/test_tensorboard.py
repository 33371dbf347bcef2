"""A profile as TensorBoard's profiler plugin sees it, asked over HTTP."""

from __future__ import annotations

import gzip
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.iotrace.timeline.torch_profiler import ProfilerSession
from dlio_torch.report.tensorboard_scalars import write_scalars
from dlio_torch.train.steps import STEP_DTYPE, TRAIN

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_tb_profiler") is None, reason="the extra 'tensorboard' is not installed"
)


class Slow(Dataset[torch.Tensor]):
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.recorder.span("read", offset=index):
            time.sleep(0.02)
            return torch.ones(1000)


def make_profile(logdir: Path, rank: int) -> None:
    recorder = Recorder(logdir.parent / "events", rank)
    loader: DataLoader[Any] = DataLoader(Slow(recorder), num_workers=1)
    batches = iter(loader)
    with ProfilerSession(logdir, f"rank{rank}", warmup=1, active=4, rank=rank, events=recorder.directory) as session:
        for _ in range(6):
            with session.fetch():
                batch = next(batches)
            with session.annotate("compute"):
                time.sleep(0.005)
                batch.sum()
            session.step()


@contextmanager
def tensorboard(logdir: Path, log: Path) -> Iterator[int]:
    """A real TensorBoard on a free port of this machine; yields the port."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    with (
        open(log, "wb") as output,
        # A session of its own: the plugin parses traces in further processes, which must end with it.
        subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while (found := re.search(r"http://[\w.]+:(\d+)", log.read_text(errors="replace"))) is None:
                assert process.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.2)
            yield int(found[1])
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def ask(port: int, route: str, plugin: str = "pytorch_profiler", **query: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", f"/data/plugin/{plugin}/{route}?{urllib.parse.urlencode(query)}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (route, query, answer.status, body[:300])
        return json.loads(gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body)
    finally:
        connection.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_plugin_lists_the_run_and_shows_the_time_of_the_loader(tmp_path: Path) -> None:
    logdir = tmp_path / "tensorboard"
    make_profile(logdir, rank=0)
    steps = np.zeros(3000, STEP_DTYPE)
    steps["phase"], steps["epoch"], steps["start_ns"] = TRAIN, 1, np.arange(3000) * 20_000_000
    steps["fetch_ns"], steps["requested_ns"], steps["samples"] = 5_000_000, 15_000_000, 4
    steps["compute_ns"] = 15_000_000
    write_scalars(logdir, {0: steps}, emulates=True)
    with tensorboard(logdir, tmp_path / "log") as port:
        deadline = time.monotonic() + 120
        while not (listed := ask(port, "runs"))["runs"] or listed["loading"]:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text(errors="replace")
            time.sleep(0.3)
        (run,) = listed["runs"]
        assert run == "tensorboard"
        assert {"Overview", "Operator", "Trace"} <= set(ask(port, "views", run=run))
        assert ask(port, "workers", run=run, view="Overview") == ["rank0"]
        assert ask(port, "spans", run=run, worker="rank0") == ["1"]
        chosen = {"run": run, "worker": "rank0", "span": "1"}

        overview = ask(port, "overview", **chosen)
        times_us = {row["name"]: float(row["value"]) for row in overview["performance"][0]["children"]}
        # Some 15 ms and 5 ms of each step on an idle machine.
        assert times_us["DataLoader"] > 0
        assert times_us["CPU Exec"] > 0
        steps = overview["steps"]["rows"]
        assert [row[0] for row in steps] == ["1", "2", "3", "4"]

        operators = ask(port, "operation/table", group_by="Operation", **chosen)["data"]
        assert {row["name"] for row in operators} >= {"compute", "aten::sum"}

        events = ask(port, "trace", **chosen)["traceEvents"]
        titles = {event["args"]["name"].split(" (")[0] for event in events if event["name"] == "process_name"}
        assert "rank 0 loader worker 0" in titles
        assert [event["name"] for event in events if event.get("cat") == "app"].count("read") >= 2

        # The page of the scalars is TensorBoard's own, and needs no network.
        curve = ask(port, "scalars", plugin="scalars", run="rank0", tag="accelerator/utilisation")
        assert [point[1] for point in curve] == list(range(3, 3001, 3))
        assert {round(point[2], 5) for point in curve} == {0.75}
        rates = ask(port, "scalars", plugin="scalars", run="rank0", tag="throughput/samples_per_s")
        assert {round(point[2]) for point in rates} == {200}
