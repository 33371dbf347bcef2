"""Options of flat binary records: ``dataset.binary``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class BinaryConfig:
    """Flat binary records with an index, as Megatron-LM's .bin and .idx."""

    access: Literal["file", "mmap"] = opt(
        "file", "file: open, seek, read and close for each piece; mmap: the file is mapped into memory"
    )
    index: bool = opt(
        True, "true: an .idx file beside each .bin file; false: only the .bin file, with records of equal size"
    )
    document_mean: float = opt(
        0.0,
        "mean elements of a document; samples are cut from shuffled documents; 0: each sample is one document",
        minimum=0,
    )
    document_stdev: float = opt(
        0.0, "standard deviation of the elements of a document, which are log-normally distributed", minimum=0
    )
