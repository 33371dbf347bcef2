"""The format without files: the contract of reading, and that it touches no file."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.synthetic.format import SyntheticFormat
from dlio_torch.formats.testing.contract import ReadingContract, read, refusal


def config(*fields: FieldConfig, samples: int = 7) -> DatasetConfig:
    return DatasetConfig(format="synthetic", fields=list(fields), samples_per_file=samples)


class TestSynthetic(ReadingContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "one": config(FieldConfig("data", "float32", [16, 16])),
        "scalar": config(FieldConfig("data", "int64", []), FieldConfig("label", "uint8", [3])),
        **{dtype: config(FieldConfig("data", dtype, [5, 8])) for dtype in DTYPES},
    }


def test_it_has_no_files(tmp_path: Path) -> None:
    fmt = SyntheticFormat(config(FieldConfig("data", "float32", [4]), samples=11), 1)
    missing = tmp_path / "missing"
    assert not fmt.needs_files
    assert fmt.stored_bytes() == 0
    assert fmt.sample_bytes() == 16
    assert fmt.inspect(missing).num_samples == 11
    reader = fmt.open(missing)
    assert reader.num_samples == 11
    assert read(fmt, reader, [0, 10])["data"].shape == (2, 4)
    reader.close()
    with pytest.raises(NotImplementedError), ThreadPoolExecutor(1) as pool:
        fmt.write(missing, 0, 1, pool)
    assert not missing.exists()


def test_every_sample_is_the_same() -> None:
    fmt = SyntheticFormat(config(FieldConfig("data", "float32", [4])), 1)
    assert np.array_equal(fmt.expected(0)["data"], fmt.expected(5)["data"])


@pytest.mark.parametrize(("first", "count"), [(7, 1), (6, 2), (-1, 1)])
def test_samples_that_are_not_there(first: int, count: int) -> None:
    fmt = SyntheticFormat(config(FieldConfig("data", "float32", [4])), 1)
    reader = fmt.open(Path("nowhere"))
    assert "7 samples" in refusal(lambda: reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "dataset.fields is empty"),
        ([FieldConfig("a", length_mean=3)], "length_mean cannot be used with dataset.format=synthetic"),
        ([FieldConfig("a", "float31")], "dtype='float31' is not a NumPy type"),
    ],
)
def test_wrong_fields_are_named(fields: list[FieldConfig], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SyntheticFormat(config(*fields), 1)
