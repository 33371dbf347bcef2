"""Options of text tables: ``dataset.csv``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import LARGEST_CALL, opt


@dataclass(frozen=True)
class CsvConfig:
    """Text tables."""

    value_chars: float = opt(
        8.0,
        "mean length of a decimal number in characters, without the separator; 8.25: every fourth number has 9",
        minimum=3,
    )
    read_bytes: int = opt(
        262144, "size of one read call, which is the parser's buffer", unit="B", minimum=1, maximum=LARGEST_CALL
    )
    chunk_rows: int = opt(0, "rows parsed at a time; 0: the whole file", minimum=0)
