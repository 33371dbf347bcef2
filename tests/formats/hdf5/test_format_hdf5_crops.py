"""Crops of HDF5 arrays: the contract, places that spread over an array, and options that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
from data_files import epoch_of, make

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.testing.contract import FormatContract, read, refusal, write
from dlio_torch.iotrace.recorder.spans import NULL

VOLUME = FieldConfig("raw", "uint8", [48, 64, 64], chunk=[8, 16, 16])
LABELS = FieldConfig("labels", "uint16", [48, 64, 64])


def config(fields: list[FieldConfig], crop: list[int], **hdf5: Any) -> DatasetConfig:
    return DatasetConfig(format="hdf5_crops", fields=fields, hdf5=Hdf5Config(crop=crop, **hdf5))


class TestHdf5Crops(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "volume": config([VOLUME], [8, 8, 8]),
        "compressed": config([VOLUME], [16, 16, 16], compression="gzip", compressibility=0.5),
        "with-labels": config([VOLUME, LABELS], [48, 9, 7], reopen="array"),
        "image": config([FieldConfig("image", "float32", [60, 50])], [20, 20], reopen="file"),
    }


def test_crops_lie_anywhere(tmp_path: Path) -> None:
    """Places fill the room that an array leaves, and differ from file to file."""
    fmt = create(replace(config([VOLUME], [8, 8, 8]), samples_per_file=64), 1)
    starts = []
    for name, first in (("a.h5", 0), ("b.h5", 64)):
        with closing(fmt.open(write(fmt, tmp_path / name, first, 64))) as reader:
            starts.append(read(fmt, reader, range(64))["start"].numpy())
    assert (starts[0] != starts[1]).any()
    assert (np.concatenate(starts).min(0) < 4).all()
    assert (np.concatenate(starts).max(0) > np.array(VOLUME.shape) - 12).all()


def test_a_crop_is_that_box_of_the_array(tmp_path: Path) -> None:
    fmt = create(replace(config([VOLUME, LABELS], [8, 9, 7]), samples_per_file=5), 1)
    path = write(fmt, tmp_path / "a.h5", 0, 5)
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, range(5))
    with h5py.File(path) as file:
        for number, (z, y, x) in enumerate(batch["start"].tolist()):
            for name in ("raw", "labels"):
                np.testing.assert_array_equal(batch[name][number], file[name][z : z + 8, y : y + 9, x : x + 7])


ENGINES: dict[str, dict[str, Any]] = {
    "main process": {},
    "threads": {"read_threads": 2},
    "workers": {"num_workers": 1, "persistent_workers": True},
    "nodes": {"engine": "nodes", "num_workers": 1},
}


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_each_epoch_has_places_of_its_own_that_every_engine_finds_again(
    options: dict[str, Any], tmp_path: Path
) -> None:
    data = replace(config([VOLUME], [8, 9, 7]), num_files=2, samples_per_file=4, root=str(tmp_path))
    setup = Config(dataset=data, loader=LoaderConfig(multiprocessing_context="fork", **options))
    fmt, manifests = make(setup)
    sampler = BatchSampler(SamplerSpec(batch_size=4), num_samples=8)
    source = Loading(setup, fmt, NULL, verify=True).source(manifests["train"], sampler, 3)
    loader = BatchLoader(setup.loader, source, sampler)
    places = [[batch["start"].tolist() for batch in epoch_of(loader, epoch)] for epoch in (0, 1, 2)]
    again = [batch["start"].tolist() for batch in epoch_of(loader, 1)]
    loader.close()
    assert again == places[1]
    assert places[0] != places[1] != places[2]
    expected = [[fmt.of_epoch(epoch).expected(sample)["start"].tolist() for sample in range(8)] for epoch in (0, 1, 2)]
    assert [first + second for first, second in places] == expected


def test_an_array_of_another_length_is_refused(tmp_path: Path) -> None:
    path = write(create(config([replace(VOLUME, shape=[49, 64, 64])], [8, 8, 8]), 1), tmp_path / "a.h5", 0, 5)
    assert "length 49" in refusal(lambda: create(config([VOLUME], [8, 8, 8]), 1).open(path), closed=path)


@pytest.mark.parametrize(
    ("fields", "crop", "words"),
    [
        ([VOLUME], [], "crop=[]"),
        ([], [8, 8, 8], "whole arrays"),
        ([VOLUME], [8, 8], "does not fit"),
        ([VOLUME], [8, 8, 65], "does not fit"),
        ([VOLUME, FieldConfig("label", "uint8", [24])], [8, 8, 8], "one fixed shape"),
    ],
)
def test_what_does_not_fit_is_refused(fields: list[FieldConfig], crop: list[int], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        create(config(fields, crop), 1)
    assert words in str(error.value)
