"""safetensors: the contract for files of many samples and of one, and files that torch wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.safetensors.options import SafetensorsConfig
from dlio_torch.formats.testing.contract import FormatContract

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")

FIELDS = [FieldConfig("data", "float32", [24, 10]), FieldConfig("label", "int64", []), FieldConfig("flag", "bool", [3])]


def options(fields: list[FieldConfig], **values: Any) -> DatasetConfig:
    return DatasetConfig(format="safetensors", fields=fields, safetensors=SafetensorsConfig(**values))


class TestRows(FormatContract):
    num_samples: ClassVar[int] = 7
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "tensors": options(FIELDS),
        "arrays": options(FIELDS, framework="np"),
        "pread": options(FIELDS, backend="pread"),
        "reopened": options(FIELDS, reopen="file"),
    }


class TestEveryDtype(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        dtype: options([FieldConfig("data", dtype, [64, 64]), FieldConfig("scalar", dtype, [])]) for dtype in DTYPES
    }


class TestOneSampleAFile(FormatContract):
    num_samples: ClassVar[int] = 1
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "tensors": options(
            [*FIELDS, FieldConfig("tokens", "int32", [2], length_mean=50, length_stdev=9)], samples="file"
        ),
        "arrays": options(FIELDS, samples="file", framework="np"),
    }
