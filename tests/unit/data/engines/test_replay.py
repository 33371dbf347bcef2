"""Samples and batches that are kept: the same shapes and contents, in memory of their own, within a limit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pattern_data import CountingFormat, configured, loaders
from ranks import clean_environ

from dlio_torch.config.schema import Config
from dlio_torch.config.validate import validate
from dlio_torch.data.engines.assemble import Loaders
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import INDEX, Batch

STREAM = {"pattern": "stream", "partition": "none", "shuffle_pool": 3}
LANES = {"pattern": "lanes", "partition": "none", "lane_rows": 2}
PATTERNS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"order": "shuffled"}, {"batch_size": 4}),
    (STREAM, {"batch_size": 4}),
    (LANES, {"batch_size": 2, "steps": 5}),
]
LOADERS: list[dict[str, Any]] = [
    {},
    {"read_threads": 2, "prefetch_batches": 2},
]


def made(access: dict[str, Any], train: dict[str, Any], replay: str, fmt: CountingFormat, **loader: Any) -> Loaders:
    config = replace(configured(access, train, {"replay": replay, **loader}), verify=False)
    return loaders(config, fmt)


def rows() -> CountingFormat:
    return CountingFormat([5, 7, 8], lengths=[1 + number % 3 for number in range(20)])


def epoch(loading: Loaders, number: int = 0) -> list[Batch]:
    batches = loading.train.epoch(number)
    return [next(batches) for _ in range(len(loading.train))]


def is_right(batch: Batch, fmt: CountingFormat) -> bool:
    numbers = batch[INDEX].tolist()
    return np.array_equal(batch["x"].numpy(), np.stack([fmt.expected(number)["x"] for number in numbers]))


@pytest.mark.parametrize("loader", LOADERS, ids=str)
@pytest.mark.parametrize(("access", "train"), PATTERNS, ids=["samples", "stream", "lanes"])
@pytest.mark.parametrize("replay", ["samples", "batches"])
def test_batches_look_like_those_that_are_read_and_nothing_is_read(
    replay: str, access: dict[str, Any], train: dict[str, Any], loader: dict[str, Any]
) -> None:
    real = epoch(made(access, train, "none", rows(), **loader))
    fmt = rows()
    loading = made(access, train, replay, fmt, **loader)
    assert loading.load_bytes is not None
    assert loading.load_bytes > 0
    fmt.seen.reads.clear()
    for number in range(2):
        batches = epoch(loading, number)
        assert len(batches) == len(real)
        assert all(is_right(batch, fmt) for batch in batches)
        assert [{name: (array.dtype, array.shape[1:]) for name, array in batch.items()} for batch in batches] == [
            {name: (array.dtype, array.shape[1:]) for name, array in batch.items()} for batch in real
        ]
    assert fmt.seen.reads == []
    loading.close()


def test_replayed_samples_are_copied_for_each_batch_and_replayed_batches_are_handed_over_again() -> None:
    access, train = {"order": "shuffled"}, {"batch_size": 1, "steps": 8}
    samples = epoch(made(access, train, "samples", rows(), replay_batches=2))
    assert len({batch[INDEX].item() for batch in samples}) == 2
    for name in ("x", "rows"):
        assert len({batch[name].data_ptr() for batch in samples}) == 8
    batches = epoch(made(access, train, "batches", rows(), replay_batches=2))
    assert [id(batch) for batch in batches] == [id(batches[0]), id(batches[1])] * 4


@pytest.mark.parametrize("replay", ["samples", "batches"])
@pytest.mark.parametrize(("access", "train"), PATTERNS[:2], ids=["samples", "stream"])
def test_memory_is_limited_and_one_batch_is_always_kept(
    replay: str, access: dict[str, Any], train: dict[str, Any]
) -> None:
    fixed = 4 * 8  # four samples of two numbers
    for limit, kept in ((1, 1), (2 * fixed, 2), (2 * fixed + fixed - 1, 2), (1 << 20, 5)):
        loading = made(access, train, replay, CountingFormat([20]), replay_bytes=limit)
        assert loading.load_bytes == kept * fixed


def test_a_worker_replays_samples_of_a_stream_and_held_batches_stay_held() -> None:
    loading = made(STREAM, {"batch_size": 2, "steps": 4}, "samples", rows(), num_workers=2)
    batches = epoch(loading)
    assert len(batches) == 4
    assert all(is_right(batch, rows()) for batch in batches)
    loading.close()
    held = epoch(made({"hold_steps": 3}, {"batch_size": 2, "steps": 6}, "batches", rows()))
    assert [id(batch) for batch in held] == [id(held[0])] * 3 + [id(held[3])] * 3
    assert held[0] is not held[3]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loader": {"replay": "samples"}, "verify": True}, "loader.replay=samples with verify=true"),
        ({"loader": {"replay": "reads", "in_memory": True}}, "loader.replay=reads with loader.in_memory=true"),
        ({"loader": {"replay": "reads"}, "trace": {"posix": True}}, "loader.replay=reads with trace.posix=true"),
        ({"loader": {"replay": "reads"}, "dataset": {"direct_io": True}}, "loader.replay=reads with dataset.direct_io"),
    ],
)
def test_what_would_be_something_else_than_it_says_is_refused(changes: dict[str, Any], said: str) -> None:
    config = Config()
    for group, options in changes.items():
        changed = replace(getattr(config, group), **options) if isinstance(options, dict) else options
        config = replace(config, **{group: changed})
    config = replace(config, dataset=replace(config.dataset, format="npy"))
    with pytest.raises(ConfigError, match=said):
        validate(config)


PROGRAM = """
import os
import numpy as np
import torch
from dlio_torch.data.dataset.in_memory_dataset import InMemoryDataset
from dlio_torch.data.engines.replay import ReplayedBatches, ReplayedSamples
from dlio_torch.formats.core.batch import ArraySpec

SHAPE, ROWS = (65536,), 4096

class Source:
    def __len__(self):
        return 16

    def __getitems__(self, wanted):
        rows = torch.from_numpy(np.ones((16 * ROWS, 16), np.float32))
        image = torch.from_numpy(np.ones((16, *SHAPE), np.float32))
        return {"index": torch.arange(16), "x": image, "y": rows, "y:lengths": torch.full((16,), ROWS)}

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(4)
memory = InMemoryDataset(Source(), range(16))
specs = [ArraySpec("x", np.dtype(np.float32), SHAPE), ArraySpec("y", np.dtype(np.float32), (16,), variable=True)]
record = {"x": np.ones(SHAPE, np.float32), "y": np.ones((ROWS, 16), np.float32)}
samples = ReplayedSamples(16, specs, [(number, record) for number in range(4)])
began = threads()
for indices in ([3, 1, 2, 0], [9, 8]):
    kept = [memory.__getitems__(indices), samples.__getitems__(indices)]
    batches = ReplayedBatches(kept, 3).start(0, 0)
    assert all(one.batch["x"].shape == (len(indices), *SHAPE) for one in batches)
print(threads() - began)
kept[0]["x"][torch.tensor([1, 0])]
print(threads() - began)
"""


def test_no_threads_are_started_to_gather_batches_in_memory() -> None:
    """Those of torch's operators would take cores from training, and wait for each other where none is free."""
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, env=clean_environ(), capture_output=True, text=True, check=True, timeout=120)
    ours, indexing = map(int, ended.stdout.split())
    assert ours == 0
    assert indexing > 0  # as torch's own indexing does
