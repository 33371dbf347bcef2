"""Options of text tables: ``dataset.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, MOST_THREADS, opt


@dataclass(frozen=True)
class CsvConfig:
    """Text tables."""

    value_chars: float = opt(
        8.0,
        "mean length of a decimal number in characters, without the separator; 8.25: every fourth number has 9",
        minimum=3,
    )
    header: bool = opt(False, "the first line holds the names of the columns, as DataFrame.to_csv writes them")
    delimiter: str = opt(",", "character between two columns")
    columns: list[int] = opt(
        [], "positions of the columns of existing files that make a sample, in the order of the fields; empty: all"
    )
    reader: Literal["buffered", "mapped"] = opt(
        "buffered",
        "buffered: read calls of read_bytes, as pandas before 3.1; mapped: files of 5 MiB and more are mapped into "
        "memory and parsed by several threads, smaller ones read as text, as pandas 3.1",
    )
    threads: int = opt(
        0,
        "threads that parse a mapped file; 0: one per core, at most 6, as pandas",
        minimum=0,
        maximum=MOST_THREADS,
    )
    read_bytes: int = opt(
        262144, "size of one read call, which is the parser's buffer", unit="B", minimum=1, maximum=LARGEST_CALL
    )
    chunk_rows: int = opt(0, "rows parsed at a time; 0: the whole file", minimum=0)
