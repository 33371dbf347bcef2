"""Silo: plain arrays through the system's library."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest
from format_reads import reads_after_open

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.silo.library import library
from dlio_torch.formats.testing.contract import FormatContract, refusal, write

FIXED = [
    FieldConfig("label", "int64", []),
    FieldConfig("image", "float32", [16, 12]),
    FieldConfig("mask", "uint8", [3, 16, 12]),
    FieldConfig("flags", "bool", [9]),
    FieldConfig("half", "float16", [5]),
]
VARIABLE = [
    FieldConfig("tokens", "int16", [], length_mean=40, length_stdev=15),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
]


def options(fields: list[FieldConfig]) -> DatasetConfig:
    return DatasetConfig(format="silo", fields=fields)


@pytest.mark.needs("silo")
class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "both": options(FIXED + VARIABLE),
        "fixed": options(FIXED),
        "variable": options(VARIABLE),
    }


@pytest.mark.needs("silo")
def test_h5py_reads_the_arrays(tmp_path: Path) -> None:
    fmt = create(options(FIXED), 5)
    with h5py.File(write(fmt, tmp_path / "a.silo", 0, 7)) as file:
        for sample in range(7):
            want = fmt.expected(sample)
            np.testing.assert_array_equal(file["image"][sample], want["image"])
            np.testing.assert_array_equal(file["mask"][sample].view(np.uint8).reshape(3, 16, 12), want["mask"])


@pytest.mark.needs("silo")
def test_equal_content_gives_equal_bytes_at_any_time(tmp_path: Path) -> None:
    fmt = create(options(FIXED), 5)
    first = write(fmt, tmp_path / "a.silo", 0, 7).read_bytes()
    time.sleep(1.1)  # whole seconds are stored
    assert write(fmt, tmp_path / "a.silo", 0, 7).read_bytes() == first


@pytest.mark.needs("silo")
def test_a_slice_is_one_read(tmp_path: Path) -> None:
    path, calls = reads_after_open({"x": options([FieldConfig("x", "float32", [20000])])}, tmp_path)["x"]
    with h5py.File(path) as file:
        place = file["x"].id.get_offset()
    wanted = [(place + 50 * 80000, 80000), (place + 10 * 80000, 20 * 80000)]
    assert [(call.offset, call.result) for call in calls] == wanted


@pytest.mark.needs("silo")
def test_other_arrays_are_refused(tmp_path: Path) -> None:
    path = write(create(options(FIXED), 5), tmp_path / "a.silo", 0, 7)
    for field, words in (
        (FieldConfig("other", "int8"), "has no array 'other'"),
        (FieldConfig("label", "int32"), "label is of Silo's type"),
        (FieldConfig("mask", "uint8", [3, 16]), "mask has shape [7, 3, 192], but the configuration expects [n, 3, 16]"),
        (FieldConfig("label", "int64", [], length_mean=2), "has no array 'label_extents'"),
    ):
        assert words in refusal(lambda: create(options([field]), 1).inspect(path), closed=path)  # noqa: B023
    os.truncate(path, path.stat().st_size - 1)
    assert "is incomplete: it has" in refusal(lambda: create(options(FIXED), 5).open(path), closed=path)


@pytest.mark.needs("silo")
def test_options_that_do_not_fit() -> None:
    for fields, words in (
        ([FieldConfig("a/b", "int8", [3])], "name='a/b' is not a valid name in Silo"),
        (
            [*VARIABLE, FieldConfig("tokens_extents", "int8", [3])],
            "is reserved for the extents of a variable-length array",
        ),
        ([FieldConfig("x", "int8", [1 << 22])], "less than 2^31"),
    ):
        with pytest.raises(ConfigError) as caught:
            create(options(fields), 1)
        assert words in str(caught.value)


def test_without_the_library_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, mode: int = 0) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(MissingPackageError, match="apt-get install libsiloh5-0"):
        library.__wrapped__()
