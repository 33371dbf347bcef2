"""Reads of tar shards: by the format and by a plain program."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.batch import Sample, samples_of
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import read
from dlio_torch.formats.webdataset.format import WebdatasetFormat
from dlio_torch.formats.webdataset.options import WebdatasetConfig

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")


def made(*fields: FieldConfig, **options: Any) -> WebdatasetFormat:
    """The format for existing shards."""
    config = DatasetConfig(format="webdataset", path="x", fields=list(fields), webdataset=WebdatasetConfig(**options))
    fmt = create(config, 1)
    assert isinstance(fmt, WebdatasetFormat)
    return fmt


def ignored(error: Exception) -> bool:
    """As the library's ignore_and_continue."""
    return True


def library(path: Path, *names: str, decode: str = "", **options: Any) -> list[tuple[Any, ...]]:
    """The samples that a plain program gets: the stages of WebDataset, which itself leaves files open."""
    with open(path, "rb") as file:
        members = wds.tariterators.tar_file_expander(iter([{"url": str(path), "stream": file}]))
        samples = wds.tariterators.group_by_keys(members)
        decoded = wds.filters.decode(*[decode] if decode else [])(samples)
        return list(wds.filters.to_tuple(*names, **options)(decoded))


def streamed(fmt: WebdatasetFormat, path: Path) -> list[Sample]:
    with closing(fmt.open(path)) as reader:
        return list(fmt.stream(reader))


def by_index(fmt: WebdatasetFormat, path: Path) -> list[Sample]:
    count = fmt.inspect(path).num_samples
    with closing(fmt.open(path)) as reader:
        return [sample for _, sample in samples_of(read(fmt, reader, range(count)), fmt.specs())] if count else []


def same(samples: list[Sample], wanted: list[tuple[Any, ...]]) -> None:
    assert len(samples) == len(wanted)
    for sample, values in zip(samples, wanted, strict=True):
        for array, value in zip(sample.values(), values, strict=True):
            expected = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
            np.testing.assert_array_equal(array, expected)


def write_own(path: Path) -> Path:
    """A shard of images of any size, labels, arrays and more, written by the library's writer."""
    rng = np.random.default_rng(2)
    with wds.TarWriter(str(path)) as writer:
        for number in range(12):
            height, width = rng.integers(5, 40, 2)
            writer.write(
                {
                    "__key__": f"some/folder.{number}/{number:05d}",
                    "jpg": rng.integers(0, 256, (height, width, 3), np.uint8),
                    "png": rng.integers(0, 256, (6, 7, 3), np.uint8),
                    "cls": number * 3,
                    "x.npy": rng.random((2, 5)),
                    "v.npy": rng.integers(0, 9, (number % 4 + 1, 3)),
                    "json": {"number": number},
                    "pyd": [number, "never loaded"],
                }
            )
    return path
