"""WebDataset shards: the contract, and the arrays that members become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.testing.contract import FormatContract
from dlio_torch.formats.webdataset.options import WebdatasetConfig

pytest.importorskip("webdataset", reason="webdataset is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

IMAGENET = [FieldConfig("jpg", "uint8", [20, 30, 3]), FieldConfig("cls", "int64")]
MIXED = [
    FieldConfig("seg.png", "uint8", [9, 16, 3]),
    FieldConfig("npy", "float32", [5, 3]),
    FieldConfig("box.npy", "int16", [4], length_mean=3, length_stdev=1),
    FieldConfig("id", "int32"),
    FieldConfig("json", "uint8", length_mean=60, length_stdev=20),
    FieldConfig("txt", "uint8", length_mean=30, length_stdev=9),
    FieldConfig("bin", "float64", [7]),
    FieldConfig("pth", "uint8", length_mean=700, length_stdev=100),
]


def options(fields: list[FieldConfig], **values: Any) -> DatasetConfig:
    return DatasetConfig(format="webdataset", fields=fields, webdataset=WebdatasetConfig(**values))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "imagenet": options(IMAGENET),
        "floats": options(IMAGENET, decode="torchrgb"),
        "stored_images": options(IMAGENET, decode="basic", buffer_bytes=512),
        "bytes": options(IMAGENET, decode="none"),
        "mixed": options(MIXED),
        "raw": options(MIXED[1:]),
        "grey": options([FieldConfig("png", "uint8", [16, 17])], decode="l8"),
        "packed": options(MIXED, compression="gzip"),
    }
