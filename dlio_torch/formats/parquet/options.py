"""Options of Parquet tables: ``dataset.parquet``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class ParquetConfig:
    """Apache Parquet tables."""

    row_group_samples: int = opt(1024, "samples per row group", minimum=1)
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    compression: Literal["none", "snappy", "gzip", "zstd"] = opt("snappy", "codec of the column chunks")
