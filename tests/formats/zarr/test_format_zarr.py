"""Zarr: the contract over chunks, shards and codecs, and stores that zarr-python wrote by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import SEED, FormatContract, read, refusal, write
from dlio_torch.formats.zarr.options import ZarrConfig

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")

FIXED = [FieldConfig("data", "float32", [24, 10])]  # 960 bytes
VARIABLE = [FieldConfig("points", "float32", [3], length_mean=100, length_stdev=30)]
MIXED = [
    FieldConfig("label", "int32", []),
    FieldConfig("data", "float64", [7, 5]),
    FieldConfig("hits", "int16", [], length_mean=60, length_stdev=20),
]


def options(fields: list[FieldConfig], **values: Any) -> DatasetConfig:
    return DatasetConfig(format="zarr", fields=fields, zarr=ZarrConfig(**values))


class TestZarr(FormatContract):
    num_samples: ClassVar[int] = 11  # no multiple of a chunk
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "one-chunk": options(MIXED),
        "cut-chunks": options(FIXED, chunk_bytes=256),
        "own-chunk": options([FieldConfig("data", "float32", [24, 10], chunk=[2, 24, 5])], reopen="array"),
        "shards": options(MIXED, chunk_bytes=700, shard_bytes=2000, reopen="file"),
        "one-shard": options(MIXED, chunk_bytes=700, shard_bytes=1 << 20),
        "zstd": options(FIXED, compression="zstd", compressibility=0.5, chunk_bytes=2000),
        "gzip-shard": options(VARIABLE, compression="gzip", chunk_bytes=2000, shard_bytes=1 << 20),
        "blosc": options(FIXED, compression="blosc", concurrency=2),
        "root": options(FIXED, root="array", max_workers=2),
    }

    def knows_its_length(self, config: DatasetConfig) -> bool:
        # numcodecs does not compare the length in a frame of Blosc with the bytes that it gets.
        return config.of(ZarrConfig).compression != "blosc"

    def test_a_truncated_file(self, config: DatasetConfig, tmp_path: Path) -> None:
        """Metadata do not state the bytes of a chunk: a cut one is refused when it is read."""
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)
        chunks = [inner for inner in path.rglob("*") if inner.is_file() and inner.suffix != ".json"]
        largest = max(chunks, key=lambda inner: inner.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)
        with closing(fmt.open(path)) as reader:
            assert str(path) in refusal(lambda: read(fmt, reader, range(self.num_samples)), closed=path)


@pytest.mark.parametrize("shard_bytes", [0, 1 << 20])
def test_gzip_chunks_do_not_tell_when_they_were_written(
    shard_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fmt = create(options(VARIABLE, compression="gzip", chunk_bytes=2000, shard_bytes=shard_bytes), SEED)
    stores = []
    for second in (1_000_000_000, 2_000_000_000):
        monkeypatch.setattr("gzip.time", SimpleNamespace(time=lambda second=second: float(second)))
        store = tmp_path / f"{second}.zarr"
        write(fmt, store, 0, 11)
        stores.append({str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()})
    assert stores[0] == stores[1]


class TestEveryDtype(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        dtype: options([FieldConfig("data", dtype, [64, 64]), FieldConfig("scalar", dtype, [])]) for dtype in DTYPES
    }
