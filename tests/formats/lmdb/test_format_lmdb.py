"""The format lmdb: environments as the library writes them, system calls as ``txn.get`` makes them."""

from __future__ import annotations

from typing import Any, ClassVar

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.testing.contract import FormatContract


def config(*fields: FieldConfig, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="lmdb", fields=list(fields), lmdb=LmdbConfig(**options))


IMAGE = FieldConfig("image", "uint8", [], length_mean=9000, length_stdev=3000)


class TestContract(FormatContract):
    configs: ClassVar = {
        "large": config(FieldConfig("a", "float32", [33, 170])),
        "small": config(FieldConfig("a", "int16", [300])),
        "variable": config(IMAGE),
        "pair": config(IMAGE, FieldConfig("label", "int64", []), key="{field}-{index:09d}", first_index=1),
        "one file": config(IMAGE, subdir=False, key="{index}"),
        "locked": config(IMAGE, lock=True, readahead=True, max_readers=3),
    }
