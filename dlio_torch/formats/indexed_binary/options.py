"""Options of flat binary records: ``dataset.binary``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class BinaryConfig:
    """Flat binary records with an index, as Megatron-LM's .bin and .idx."""

    access: Literal["file", "mmap"] = opt("file", "open, seek, read, close for each piece; or map the file")
    index: bool = opt(True, "an .idx beside each .bin; false: the .bin alone, records of equal size")
    document_mean: float = opt(
        0.0, "mean elements of a document; samples are cut from shuffled documents; 0: a sample is one", minimum=0
    )
    document_stdev: float = opt(0.0, "standard deviation of the log-normal number of elements of a document", minimum=0)
