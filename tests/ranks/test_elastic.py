"""Runs whose ranks come and go: where they go on, what they refuse, and a real loss below horovodrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import clean_environ, need_horovod

from dlio_torch.config.compose import compose
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.execution.elastic_position import ElasticPosition
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.run_directory.run_state import read
from dlio_torch.train.steps import read_steps

SAMPLES, BATCH = 512, 4


class Loader:
    """What a position asks of a loader."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"kind": "samples", "epoch": 0, "step": 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


@given(
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=5),
    order=st.sampled_from(["sequential", "shuffled"]),
)
def test_no_sample_is_left_out_whatever_ranks_go_on(worlds: list[tuple[int, int]], order: Any) -> None:
    epoch, done, came = 2, 0, []
    for number, (world_size, steps) in enumerate(worlds):
        last = number == len(worlds) - 1
        begun, repeated = done, 0
        for rank in range(world_size):
            sampler = BatchSampler(
                SamplerSpec(batch_size=BATCH, order=order, rank=rank, world_size=world_size, seed=7, tail="pad"),
                num_samples=240,
            )
            reached: list[tuple[int, int, bool]] = []
            loader = Loader()
            position = ElasticPosition(epoch, begun, lambda *at, reached=reached: reached.append(at))
            (_, first), after_step = position.begin(loader, sampler, world_size)  # type: ignore[arg-type]
            assert loader.state.get("step", 0) == first
            assert loader.state.get("epoch", epoch - 1) == epoch - 1
            end = len(sampler) if last else min(first + steps, len(sampler))
            for step in range(first, end):
                came.append(sampler.batch(epoch - 1, step))
                after_step(epoch, step + 1, False)
            repeated = begun - first * BATCH * world_size
            done = max(done, end * BATCH * world_size)
        assert 0 <= repeated < BATCH * world_size or begun >= 240
    assert set(np.concatenate(came).tolist()) == set(range(240))


@pytest.mark.horovod
@pytest.mark.parametrize(
    "option",
    [
        "dist.backend=torch",
        "access=shared_file",
        "access=stream",
        "access.hold_steps=2",
        "stage.dir=local",
        "trace.horovod=true",
    ],
)
def test_what_cannot_go_on_with_other_ranks_is_refused(option: str) -> None:
    need_horovod()
    from dlio_torch.execution.elastic import run_elastically
    from dlio_torch.execution.pipeline import run_phases

    composed = compose(["recipe=minimal", option], environ={})
    with pytest.raises(ConfigError, match=r"elastic (run|mode).*(set|leave) [a-z_.]+="):
        run_elastically(composed, ("train",), run_phases)


@pytest.mark.ranks
@pytest.mark.horovod
def test_the_others_go_on_after_a_loss(tmp_path: Path) -> None:
    need_horovod()
    hosts = tmp_path / "hosts.sh"
    hosts.write_text("#!/bin/sh\necho localhost:1\necho 127.0.0.1:1\n")  # of the host with the lost rank none is asked
    hosts.chmod(0o755)
    run = tmp_path / "run"
    options = [
        "recipe=minimal", "scale.max_samples=0", "scale.max_files=0", "scale.max_steps=0", "dataset.num_files=8",
        "dataset.samples_per_file=64", f"train.batch_size={BATCH}", "train.epochs=1", "train.allreduce_bytes=64KiB",
        "compute.step_s=0.08", "scale.compute=1", "dist.horovod.commit_steps=3", "verify=true",
        f"dataset.root={tmp_path}", f"output.dir={run}", "output.progress=false",
    ]  # fmt: skip
    command = [
        sys.executable, "-W", "ignore", "-m", "horovod.runner.launch", "--gloo", "-np", "2", "--min-np", "1",
        "--max-np", "2", "--host-discovery-script", str(hosts), "--network-interfaces", "lo",
        sys.executable, "-m", "dlio_torch", *options,
    ]  # fmt: skip
    with (tmp_path / "printed").open("w+") as printed:
        launched = subprocess.Popen(
            command, env=clean_environ(), cwd=tmp_path, stdout=printed, stderr=printed, start_new_session=True
        )
        try:
            lost = wait_for_rank(launched.pid, run, "127.0.0.1")
            os.kill(lost, signal.SIGKILL)
            assert launched.wait(120) == 0, (tmp_path / "printed").read_text()
        finally:
            if launched.poll() is None:
                os.killpg(launched.pid, signal.SIGKILL)
    text = (tmp_path / "printed").read_text()
    assert "elastic run: 2 ranks start" in text
    folder = RunDir(run)
    first, second = json.loads(folder.elastic.read_text())["turns"]
    assert (first["world_size"], first["samples"], first["again"], first["run"]) == (2, 0, None, "turn-1")
    assert (second["world_size"], second["epoch"], len(second["hosts"])) == (1, 1, 1)
    assert second["samples"] > 0
    assert second["samples"] % (3 * 2 * BATCH) == 0  # a commit of both
    assert second["again"] >= 0
    state = read(RunDir(folder.turn(1)).state)
    assert state is not None
    assert state.why_early() == "a rank was lost, and the run continues with the remaining ranks"
    ended = RunDir(folder.turn(2))
    (steps,) = read_steps(ended.steps()).values()
    assert steps["samples"].sum() == SAMPLES - second["samples"]
    assert steps["step"].tolist() == list(range(second["samples"] // BATCH + 1, SAMPLES // BATCH + 1))
    assert ended.read_json(ended.summary)["world_size"] == 1


def wait_for_rank(launcher: int, run: Path, host: str) -> int:
    """Process of the rank on ``host``, when all ranks have committed."""
    deadline = time.monotonic() + 100
    while not all(recorded(RunDir(run / "turn-1").steps(rank)) > 3 for rank in range(2)):
        assert psutil.Process(launcher).status() != psutil.STATUS_ZOMBIE
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for process in psutil.Process(launcher).children(recursive=True):
        if process.environ().get("HOROVOD_HOSTNAME") == host and "dlio_torch" in process.cmdline():
            return process.pid
    raise AssertionError("no such rank")


def recorded(steps: Path) -> int:
    """Steps that a rank has written down so far."""
    try:
        return sum(map(len, read_steps(steps).values()))
    except DataError:  # it has not begun
        return 0
