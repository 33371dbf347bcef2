"""The contract, run by pytest where the package is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from framed_format.options import FramedConfig

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.testing.contract import FormatContract

FIELDS = [FieldConfig("image", "float32", [8, 8]), FieldConfig("label", "int64", [1])]


class TestFramed(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "small": DatasetConfig(format="framed", fields=FIELDS),
        "aligned": DatasetConfig(format="framed", fields=FIELDS, framed=FramedConfig(alignment=4096, read_bytes=512)),
    }
