"""Options of Arrow IPC files: ``dataset.arrow``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class ArrowConfig:
    """Arrow IPC files, in which Hugging Face data sets are saved."""

    memory_map: bool = opt(
        True,
        "true: map files into memory and read samples by page faults, as datasets does; false: read each file whole "
        "when it is opened, as keep_in_memory=True does",
    )
    batch_rows: int = opt(
        1000,
        "rows of a record batch of generated files; datasets writes 1000, and 100 of images or bytes",
        minimum=1,
    )
    ipc: Literal["stream", "file"] = opt(
        "stream",
        "container of the record batches; stream: as Dataset.save_to_disk writes; file: with a table of the batches, "
        "as pyarrow.ipc.new_file and Feather write",
    )
    compression: Literal["none", "lz4", "zstd"] = opt(
        "none", "codec of the buffers of generated files; compressed files are decoded into memory when opened"
    )
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
