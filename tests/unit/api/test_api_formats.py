"""Datasets of all formats: their samples, collated, are the batches that the application's loader delivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import optional_parts
import pytest
import torch
from format_configs import CONFIGS, ONE_SAMPLE
from torch.utils.data import DataLoader

import dlio_torch
from dlio_torch.config.schema import Config, TrainConfig
from dlio_torch.errors import MissingPackageError


@pytest.mark.parametrize("name", optional_parts.formats(sorted(CONFIGS)))
def test_collated_samples_are_the_batches_of_the_loader(name: str, tmp_path: Path) -> None:
    per_file = 1 if name in ONE_SAMPLE else 3
    data = replace(CONFIGS[name], root=str(tmp_path), num_files=2, samples_per_file=per_file)
    config = Config(recipe="mine", dataset=data, train=TrainConfig(batch_size=2))
    try:
        samples = dlio_torch.dataset(config)
    except MissingPackageError as error:
        pytest.skip(str(error))
    assert len(samples) == 2 * per_file
    batches = list(DataLoader(samples, batch_size=2, collate_fn=samples.collate))
    with dlio_torch.loader(config) as loader:
        expected = list(loader)
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert batch.keys() == other.keys() - {"index"}
        for key, tensor in batch.items():
            assert torch.equal(tensor, other[key]) or np.array_equal(tensor.numpy(), other[key].numpy(), equal_nan=True)
