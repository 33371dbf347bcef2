"""Options of safetensors files: ``dataset.safetensors``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt

SAMPLES_OPTION = "dataset.safetensors.samples (file: a file is one unstacked sample)"
"""The option to correct where an array has an axis more or less than its samples; for messages."""


@dataclass(frozen=True)
class SafetensorsConfig:
    """The samples of a safetensors file, and the calls that read them."""

    samples: Literal["rows", "file"] = opt(
        "rows",
        "rows: the first axis of each array counts samples (safe_open(path).get_slice(name)[i:i+1]); file: each file "
        "is one sample (load_file(path))",
    )
    framework: Literal["pt", "np"] = opt(
        "pt", "arrays are read as tensors (pt) or as NumPy arrays (np), which have no bfloat16 and no float8"
    )
    backend: Literal["mmap", "pread"] = opt(
        "mmap",
        "mmap: the library maps the file; pread: it reads arrays by pread, always whole ones (since safetensors 0.8)",
    )
    reopen: Literal["none", "file"] = opt(
        "none", "none: a file of many samples stays open; file: it is opened for each read, with its header"
    )
