"""A worker's batch lies in the memory through which it is transferred, and only what an application transfers does."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strace
import torch
from data_files import make_raw
from ranks import REPO, clean_environ
from torch.utils.data import DataLoader, Dataset

from dlio_torch.data.dataset.batch_memory import batch_allocator
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.in_memory_dataset import InMemoryDataset
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, collated
from dlio_torch.iotrace.recorder.spans import NULL

RECORD = np.dtype([("energy", "<f4"), ("channel", "<i2")])
SPECS = [
    ArraySpec("image", np.dtype(np.float32), (3, 2)),
    ArraySpec("hits", RECORD, (4,)),
    ArraySpec("nothing", np.dtype(np.uint8), (0,)),
    ArraySpec("rows", np.dtype(np.int16), (2,), variable=True),
]


def sample(number: int) -> dict[str, Any]:
    return {
        "image": np.full((3, 2), number, np.float32),
        "hits": np.array([(number, 7)] * 4, RECORD),
        "nothing": np.zeros(0, np.uint8),
        "rows": np.full((number, 2), number, np.int16),
    }


class Collating(Dataset[Fetched]):
    """Collates samples in a worker; the number of the batch tells how many of its tensors are shared already."""

    def __len__(self) -> int:
        return 6

    def __getitems__(self, indices: Sequence[int]) -> Fetched:
        batch = collated(SPECS, [(index, sample(index)) for index in indices], batch_allocator())
        return Fetched(batch, sum(tensor.is_shared() for name, tensor in batch.items()))


def test_tensors_are_made_in_shared_memory() -> None:
    loader = DataLoader(Collating(), 3, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="fork")
    got = list(loader)
    assert [fetched.number for fetched in got] == [2, 2]  # those of fixed shape, but an empty one
    here = [collated(SPECS, [(index, sample(index)) for index in rows]) for rows in ((0, 1, 2), (3, 4, 5))]
    for fetched, batch in zip(got, here, strict=True):
        assert list(fetched.batch) == list(batch)
        for name, tensor in batch.items():
            assert (fetched.batch[name].dtype, fetched.batch[name].tolist()) == (tensor.dtype, tensor.tolist()), name


class Reading(Dataset[Fetched]):
    """Samples of files; the number of the batch tells how many of its tensors are shared already."""

    def __init__(self, samples: Dataset[Any], count: int) -> None:
        self.samples, self.count = samples, count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: Sequence[int]) -> Fetched:
        batch = self.samples.__getitems__(indices)  # type: ignore[attr-defined]
        return Fetched(batch, sum(tensor.is_shared() for tensor in batch.values()))


@pytest.mark.parametrize("in_memory", [False, True])
def test_samples_of_files_are_collated_in_shared_memory(in_memory: bool, tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    samples: Any = SampleDataset(fmt, manifest, NULL)
    alone = samples.__getitems__([3, 4, 5])
    assert not any(tensor.is_shared() for tensor in alone.values())
    if in_memory:
        samples = InMemoryDataset(samples, range(manifest.num_samples))
    loader = DataLoader(
        Reading(samples, 6), 3, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="fork"
    )
    got = list(loader)
    assert [fetched.number for fetched in got] == [1, 1]  # all but the sample numbers
    assert {name: tensor.tolist() for name, tensor in got[1].batch.items()} == {
        name: tensor.tolist() for name, tensor in alone.items()
    }


def test_this_process_is_no_worker() -> None:
    assert batch_allocator() is None
    buffer = BatchBuffer(SPECS[:2], [0, 1], batch_allocator())
    assert not any(tensor.is_shared() for tensor in buffer.finish().values())


def test_what_the_tool_adds_travels_beside_the_tensors() -> None:
    fetched = Fetched(collated(SPECS, [(5, sample(5))]), 9)
    again = pickle.loads(pickle.dumps(fetched))
    assert (type(again), again.number, again.error) == (Fetched, 9, None)
    assert list(again.batch) == list(fetched.batch)
    again.batch["index"] += 1  # as writable as it was
    assert again.batch["index"].tolist() == [6]
    assert b"tensor" not in pickle.dumps(Fetched({"index": torch.zeros(4), "rows:lengths": torch.ones(2)}))


PLAIN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return torch.zeros(5, 4), index

if __name__ == "__main__":
    loader = DataLoader(Images(), 2, num_workers=1, multiprocessing_context="fork")
    assert sum(len(images) for images, labels in loader) == 6
"""
OURS = """
import sys
sys.path[:0] = {paths}
from pathlib import Path
from data_files import config_of, loader_of, make
from dlio_torch.config.schema import FieldConfig

if __name__ == "__main__":
    fields = [FieldConfig("image", "float32", [5, 4]), FieldConfig("label", "int64", [])]
    fmt, manifests = make(config_of(Path("data"), 2, 3, fields=fields))
    loader = loader_of(fmt, manifests["train"], num_workers=1, multiprocessing_context="fork")
    assert sum(len(batch["image"]) for batch in loader.epoch(0)) == 6
    loader.close()
"""


def segments(program: str, folder: Path) -> int:
    """Segments of shared memory that a program of three batches makes."""
    strace.need_strace()
    (folder / "program.py").write_text(program)
    calls = strace.trace([sys.executable, "program.py"], folder / "log", cwd=folder, env=clean_environ())
    opened = [call for call in calls if call.name in strace.OPENS and "O_CREAT" in call.arguments]
    return sum("/dev/shm/torch_" in call.arguments for call in opened)


@pytest.mark.ranks
def test_as_many_segments_as_a_plain_program(tmp_path: Path) -> None:
    """Two tensors of three batches; each costs a file of shared memory, a descriptor and a connection."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "ours").mkdir()
    paths = [str(REPO), str(REPO / "tests" / "support")]
    assert segments(PLAIN, tmp_path / "plain") == 6
    assert segments(OURS.format(paths=paths), tmp_path / "ours") == 6 + 1  # one by which workers learn of the epoch
