"""Datasets and DataPipes for DataLoaders of one's own: every sample once, with the generated content."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import dlio_torch
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.generation_lock import exclusive
from dlio_torch.data.dataset.manifest import data_folder
from dlio_torch.data.engines.registry import format_of
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import ConfigError, DataError

SMALL = ("scale=paper", "dataset.num_files=3", "dataset.samples_per_file=4", "dataset.fields.0.shape=[4,5]")
UNEVEN = (
    "dataset.fields=[{name: x, dtype: float32, shape: [2], length_mean: 6, length_stdev: 3}, "
    "{name: y, dtype: int32, shape: []}]"
)


def config(folder: Path, *overrides: str) -> Config:
    given = {override.partition("=")[0] for override in overrides}
    small = [option for option in SMALL if option.partition("=")[0] not in given]
    if "dataset.fields" in given:
        small.remove("dataset.fields.0.shape=[4,5]")
    return dlio_torch.compose("minimal", [*small, f"dataset.root={folder}", *overrides])


def content(made: Config, number: int) -> dict[str, np.ndarray]:
    """The generated content of a sample."""
    return format_of(made).expected(number)  # type: ignore[return-value]


def test_items_are_the_generated_samples(tmp_path: Path) -> None:
    made = config(tmp_path)
    samples = dlio_torch.dataset(made)
    assert len(samples) == 12
    assert [(spec.name, spec.shape) for spec in samples.specs] == [("data", (4, 5))]
    for number in (0, 5, 11, -1, np.int64(7), torch.tensor(3)):
        sample = samples[number]  # type: ignore[index]
        expected = content(made, int(number) % 12)["data"]
        assert list(sample) == ["data"]
        np.testing.assert_array_equal(sample["data"].numpy(), expected)
    with pytest.raises(IndexError, match="sample 12 of a data set of 12"):
        samples[12]
    with pytest.raises(IndexError):
        samples[-13]
    with pytest.raises(ConfigError, match="expected a whole number, not slice"):
        samples[0:2]  # type: ignore[index]
    with pytest.raises(ConfigError, match="not float"):
        samples[1.0]  # type: ignore[index]
    assert sum(1 for _ in Subset(samples, [1, 2])) == 2


@pytest.mark.parametrize("context", [None, "fork", "spawn", "forkserver"])
def test_a_data_loader_with_the_default_collate_takes_it(context: str | None, tmp_path: Path) -> None:
    made = config(tmp_path)
    samples = dlio_torch.dataset(made)
    samples[0]  # its file is open here, and must not be used by a forked worker
    workers = 2 if context else 0
    loader = DataLoader(samples, batch_size=2, num_workers=workers, multiprocessing_context=context)
    batches = list(loader)
    assert [batch["data"].shape for batch in batches] == [(2, 4, 5)] * 6
    for number, array in enumerate(torch.cat([batch["data"] for batch in batches]).numpy()):
        np.testing.assert_array_equal(array, content(made, number)["data"])


def test_a_recipe_and_overrides_take_the_place_of_a_configuration(tmp_path: Path) -> None:
    samples = dlio_torch.dataset(recipe="minimal", overrides=[*SMALL, f"dataset.root={tmp_path}"])
    assert len(samples) == 12


def test_it_can_be_pickled(tmp_path: Path) -> None:
    samples = dlio_torch.dataset(config(tmp_path))
    samples[0]
    again = pickle.loads(pickle.dumps(samples))
    assert torch.equal(again[7]["data"], samples[7]["data"])
    pipe = pickle.loads(pickle.dumps(dlio_torch.datapipe(config(tmp_path))))
    assert len(list(pipe)) == 12


def test_samples_of_variable_length_have_a_collate_function(tmp_path: Path) -> None:
    made = config(tmp_path, UNEVEN)
    samples = dlio_torch.dataset(made)
    expected = [content(made, number) for number in range(12)]
    assert len({len(sample["x"]) for sample in expected}) > 1
    first, second, *_ = DataLoader(samples, batch_size=6, num_workers=2, collate_fn=samples.collate)
    for batch, part in ((first, expected[:6]), (second, expected[6:])):
        np.testing.assert_array_equal(batch["x"].numpy(), np.concatenate([sample["x"] for sample in part]))
        assert batch["x:lengths"].tolist() == [len(sample["x"]) for sample in part]
        assert batch["y"].tolist() == [int(sample["y"]) for sample in part]
        assert sorted(batch) == ["x", "x:lengths", "y"]


def test_damaged_and_missing_files_are_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = config(tmp_path)
    samples = dlio_torch.dataset(made)
    path = next(tmp_path.rglob("train_0000001*"))
    path.write_bytes(b"no HDF5")
    with pytest.raises(DataError, match=path.name):
        samples[5]
    path.unlink()
    with pytest.raises(DataError, match=path.name):
        samples[5]
    with pytest.raises(DataError, match=path.name):
        list(DataLoader(samples, batch_size=4))
    assert capfd.readouterr().err == ""


def test_verify_compares_with_what_was_generated(tmp_path: Path) -> None:
    dlio_torch.dataset(config(tmp_path, "dataset=npz"))
    made = config(tmp_path, "dataset=npz", "verify=true")
    assert len(list(DataLoader(dlio_torch.dataset(made), batch_size=4))) == 3
    assert len(list(dlio_torch.datapipe(made))) == 12


@pytest.mark.parametrize("access", ["shuffled", "sequential", "stream", "whole_files"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_pipe_gives_each_sample_once(access: str, workers: int, tmp_path: Path) -> None:
    made = config(tmp_path, f"access={access}", "train.batch_size=2")
    pipe = dlio_torch.datapipe(made)
    batches = list(DataLoader(pipe, batch_size=2, num_workers=workers))
    sums = sorted(float(array.sum(dtype=np.float64)) for batch in batches for array in batch["data"].numpy())
    expected = sorted(float(content(made, number)["data"].sum(dtype=np.float64)) for number in range(12))
    assert sums == pytest.approx(expected)


def test_a_shuffled_order_depends_on_the_epoch(tmp_path: Path) -> None:
    pipe = dlio_torch.datapipe(config(tmp_path, "access=shuffled"))
    first, again = ([sample["data"].sum().item() for sample in pipe] for _ in range(2))
    pipe.set_epoch(1)
    second = [sample["data"].sum().item() for sample in pipe]
    assert first == again
    assert first != second
    assert sorted(first) == sorted(second)
    with pytest.raises(ConfigError, match="epoch=-1"):
        pipe.set_epoch(-1)


def test_ranks_share_the_samples(tmp_path: Path) -> None:
    made = config(tmp_path, "train.batch_size=2")
    parts = [dlio_torch.datapipe(made, rank=rank, world_size=3) for rank in range(3)]
    sums = [sample["data"].sum().item() for part in parts for sample in part]
    assert len(sums) == len(set(sums)) == 12


@pytest.mark.parametrize("option", ["access.io=independent", "stage.dir=copies", "loader.replay=reads"])
def test_options_that_need_a_run_are_refused(option: str, tmp_path: Path) -> None:
    made = config(tmp_path, option)
    for call in (dlio_torch.dataset, dlio_torch.datapipe, dlio_torch.loader):
        with pytest.raises(ConfigError, match=r"needs the processes of a run.*dlio_torch\.run"):
            call(made)
    assert list(tmp_path.iterdir()) == []


def test_data_that_another_process_writes_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlio_torch.api import opened_data

    made = config(tmp_path)
    other = exclusive(data_folder(made, format_of(made)), SingleCommunicator())
    other.__enter__()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        other.__exit__(None, None, None)

    monkeypatch.setattr(opened_data.time, "sleep", wait)
    assert len(dlio_torch.dataset(made)) == 12
    assert len(waits) == 1
