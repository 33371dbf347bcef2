import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from dlio_torch import cli
from dlio_torch.config.schema import ComputeConfig, Config, LoaderConfig, TrainConfig
from dlio_torch.environment.gpu import gpu_of
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.execution import training
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.train import to_device
from dlio_torch.train.steps import EVAL, read_steps
from dlio_torch.train.to_device import DeviceCopies, needs_gpu

HELD = ("access.hold_steps=2", "train.steps=6")
BATCH = {
    "index": torch.arange(2),
    "image": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
    "rows": torch.ones(5),
    "rows:lengths": torch.tensor([2, 3]),
}


def small_run(folder: Path, *options: str) -> list[str]:
    data = (
        "dataset.num_files=2",
        "dataset.samples_per_file=6",
        "dataset.num_files_eval=1",
        "dataset.samples_per_file_eval=4",
        "train.batch_size=2",
    )
    return ["recipe=minimal", *data, f"dataset.root={folder}/data", f"output.dir={folder}/run", *options]


class FakeCuda:
    """What the copies ask of :mod:`torch.cuda`, and in which order."""

    def __init__(self, broken=False):
        self.calls = []
        self.broken = broken

    def get_device_name(self, device):
        return "Fake GPU"

    def Event(self):
        return self

    def record(self):
        self.calls.append("record")

    def synchronize(self):
        self.calls.append("synchronize")
        if self.broken:
            raise RuntimeError("CUDA error: unspecified launch failure\nmore lines")


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_a_batch_without_the_tool_s_own_tensors_is_copied_and_waited_for(cuda):
    copies = DeviceCopies(torch.device("meta"))
    copies.start(BATCH)
    assert cuda.calls == ["record"]
    copies.finish()
    assert cuda.calls == ["record", "synchronize"]
    assert [(there.device.type, there.shape, there.dtype) for there in copies._there] == [
        ("meta", (2, 3), torch.uint8),
        ("meta", (5,), torch.float32),
    ]
    assert copies.name == "Fake GPU"


def test_an_error_of_the_gpu_is_one_line_with_a_remedy(cuda):
    cuda.broken = True
    copies = DeviceCopies(torch.device("meta"))
    copies.start(BATCH)
    with pytest.raises(RunFailed, match=r"^a batch cannot be copied to the GPU: CUDA error: [^\n]*train\.device=cpu$"):
        copies.finish()


def test_ranks_of_a_node_share_its_gpus_in_turn():
    assert [gpu_of(local_rank, 4) for local_rank in range(6)] == [0, 1, 2, 3, 0, 1]
    assert gpu_of(3, 1) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("config", "option"),
    [
        (Config(train=TrainConfig(device="cuda")), r"train\.device=cuda"),
        (Config(compute=ComputeConfig(mode="cuda")), r"compute\.mode=cuda"),
        (Config(loader=LoaderConfig(pin_memory=True)), r"loader\.pin_memory=true"),
    ],
)
def test_what_needs_a_gpu_says_so(config, option):
    with pytest.raises(PreconditionError, match=f"^{option} needs a GPU, and torch finds none.*leave {option} out"):
        needs_gpu(config)
    assert not needs_gpu(Config())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_found_before_anything_is_written(tmp_path: Path, capsys):
    assert cli.main(small_run(tmp_path, "train.device=cuda")) == 3
    assert (
        capsys.readouterr().err.strip().splitlines()[-1].startswith("dlio_torch: error: train.device=cuda needs a GPU")
    )
    assert list(tmp_path.iterdir()) == []


class Slow:
    """Copies that take a millisecond."""

    name = "Slow GPU"

    def __init__(self, device):
        assert device == "a device"
        self.batches = []

    def start(self, batch):
        self.batches.append(batch["index"].tolist())
        time.sleep(0.001)

    def finish(self):
        self.batches.append("there")


def test_the_trainer_copies_each_batch_once_and_records_it(tmp_path: Path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(to_device, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "use_gpu", lambda local_rank: "a device")
    monkeypatch.setattr(training, "DeviceCopies", lambda device: made.append(Slow(device)) or made[0])
    assert cli.main(small_run(tmp_path, "train.device=cuda", *HELD, "train.eval_every_epochs=1", "verify=true")) == 0
    steps = read_steps(tmp_path / "run" / "steps.csv")[0]
    train = steps[steps["phase"] != EVAL]
    assert ((train["copy_ns"] >= 10**6) == (np.arange(len(train)) % 2 == 0)).all()
    assert (steps[steps["phase"] == EVAL]["copy_ns"] >= 10**6).all()
    assert made[0].batches[1::2] == ["there"] * (len(made[0].batches) // 2)
    copied = [number for batch in made[0].batches[::2] for number in batch]
    assert len(copied) == train["samples"].sum() // 2 + steps[steps["phase"] == EVAL]["samples"].sum()
    spans = read_events(tmp_path / "run" / "events").frame
    found = spans[spans["op"] == "copy"]
    assert (found["end_ns"] - found["start_ns"]).tolist() == train["copy_ns"][::2].tolist()
    assert (spans["op"] == "eval_copy").sum() == (steps["phase"] == EVAL).sum()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["gpu"] == "Slow GPU"
    assert summary["copies"]["bytes_per_s"] > 0
    assert "to Slow GPU" in capsys.readouterr().out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("pinned", ["false", "true"])
def test_batches_reach_a_real_gpu(tmp_path: Path, pinned: str, capsys):
    copies = DeviceCopies(torch.device("cuda", 0))
    batch = {name: tensor.pin_memory() for name, tensor in BATCH.items()} if pinned == "true" else BATCH
    copies.start(batch)
    copies.finish()
    np.testing.assert_array_equal(copies._there[0].cpu(), BATCH["image"])
    run = small_run(tmp_path, "train.device=cuda", "compute.mode=cuda", f"loader.pin_memory={pinned}", *HELD)
    assert cli.main(run) == 0
    steps = read_steps(tmp_path / "run" / "steps.csv")[0]
    assert ((steps["copy_ns"] > 0) == (np.arange(len(steps)) % 2 == 0)).all()
    assert "copies" in capsys.readouterr().out
