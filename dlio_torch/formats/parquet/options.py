"""Options of Parquet tables: ``dataset.parquet``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt

READING = ("read", "batch_rows", "reopen", "memory_map", "pre_buffer", "use_threads")
"""Options that only concern reading."""


@dataclass(frozen=True)
class ParquetConfig:
    """Apache Parquet tables."""

    row_group_samples: int = opt(1024, "samples per row group", minimum=1)
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    dictionary: bool = opt(
        False,
        "generated files have a dictionary of the values of each column, pyarrow's default; random values then take "
        "more bytes",
    )
    compression: Literal["none", "snappy", "gzip", "zstd"] = opt("snappy", "codec of the column chunks")
    read: Literal["row_group", "single_row", "table"] = opt(
        "row_group",
        "call that reads samples; row_group: ParquetFile.read_row_group, whose last result is kept; single_row: the "
        "same for each sample, and nothing is kept; table: pyarrow.parquet.read_table, once when the file is opened",
    )
    batch_rows: int = opt(
        0,
        "rows of a batch when a stream reads by ParquetFile.iter_batches (pyarrow's default is 65536); 0: it reads "
        "whole row groups",
        minimum=0,
    )
    reopen: Literal["none", "row_group"] = opt(
        "none",
        "none: a file stays open, and its footer is read once; row_group: it is opened for each row group "
        "(ParquetFile(path).read_row_group(group)); of no effect with read=table or batch_rows",
    )
    memory_map: bool = opt(False, "map files into memory, as memory_map=True does")
    pre_buffer: bool = opt(
        False,
        "read the column chunks of a row group by threads and in larger requests before they are decoded, which is "
        "pyarrow's default today; older releases did so in read_table, but not in ParquetFile",
    )
    use_threads: bool = opt(
        False,
        "decode columns in pyarrow's threads, which is its default; false: one thread reads, in a fixed order, except "
        "with read=table or pre_buffer=true",
    )
