"""A PyTorch program of one's own reads an HDF5 file of one's own through our dataset: all samples, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from ranks import clean_environ
from strace import READS, Call, need_strace, trace

import dlio_torch
from dlio_torch import cli

WRITE = """
import h5py, numpy as np
rng = np.random.default_rng(7)
with h5py.File("events.h5", "w") as file:
    file["images"] = rng.standard_normal((40, 160, 128)).astype(np.float32)
    file["labels"] = rng.integers(0, 10, 40)
"""
OURS = """
import dlio_torch

fields = "[{name: images, dtype: float32, shape: [160, 128]}, {name: labels, dtype: int64, shape: []}]"
samples = dlio_torch.dataset(overrides=["dataset.path=events.h5", f"dataset.fields={fields}"])
"""
TRAIN = f"""{OURS}
import numpy as np
from torch.utils.data import DataLoader

batches = list(DataLoader(samples, batch_size=2, num_workers=2))
np.savez("read.npz", **{{name: np.concatenate([batch[name].numpy() for batch in batches]) for name in batches[0]}})
"""
PLAIN = """
import h5py
from torch.utils.data import DataLoader, Dataset

class Events(Dataset):
    file = None
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File("events.h5")
            self.images, self.labels = self.file["images"], self.file["labels"]
        return self.images[index], self.labels[index]

for batch in DataLoader(Events(), batch_size=2, num_workers=2):
    pass
"""
BLOCK = f"""{OURS}
with dlio_torch.iotrace.record("recorded", include=["events.h5"]):
    for number in range(len(samples)):
        samples[number]
"""
IMAGE_BYTES = 160 * 128 * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file that h5py alone has written."""
    subprocess.run([sys.executable, "-c", WRITE], cwd=tmp_path, check=True)
    return tmp_path


def reads(program: str, folder: Path) -> list[Call]:
    """The reads of the file by a program under strace."""
    calls = trace([sys.executable, "-c", program], folder / "calls.log", cwd=folder, env=clean_environ())
    return [call for call in calls if call.path.endswith("events.h5") and call.name in READS and call.result > 0]


def test_a_data_loader_reads_every_sample_as_plain_h5py_does(folder: Path) -> None:
    need_strace()
    calls = {program: reads(program, folder) for program in (TRAIN, PLAIN)}
    with h5py.File(folder / "events.h5") as file, np.load(folder / "read.npz") as read:
        assert sorted(read.files) == ["images", "labels"]
        for name in read.files:
            np.testing.assert_array_equal(read[name], file[name][()])
    images = {
        program: sorted(call.result for call in made if call.result >= IMAGE_BYTES) for program, made in calls.items()
    }
    assert images[TRAIN] == images[PLAIN] == [IMAGE_BYTES] * 40
    # The worker of a program opens the file, and reads its headers, as plain h5py does.
    workers = {
        program: {call.tid: sum(other.result for other in made if other.tid == call.tid) for call in made}
        for program, made in calls.items()
    }
    ours, plain = (sorted(bytes_of.values())[-2:] for bytes_of in workers.values())
    assert ours == plain


def test_a_recorded_block_has_the_bytes_of_strace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_strace()
    monkeypatch.chdir(folder)
    done = subprocess.run(
        [sys.executable, "-c", BLOCK], env=clean_environ(), capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    events = dlio_torch.load_run("recorded").events
    recorded = events[events["op"].isin(["read", "pread"]) & (events["bytes"] > 0)]["bytes"].tolist()
    assert recorded.count(IMAGE_BYTES) == 40
    assert cli.main(["predict", "recorded", "system=theta", "ranks=1,2"]) == 0
    assert "strace slowed the program down" in " ".join(capsys.readouterr().out.split())
    calls = reads(f"{OURS}\nfor number in range(len(samples)):\n    samples[number]", folder)
    before = reads(OURS, folder)  # opening the data set reads headers
    assert sorted(recorded) == sorted(call.result for call in calls[len(before) :])
