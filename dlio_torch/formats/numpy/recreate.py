"""Options that generate NumPy files like existing ones: arrays, and how far an archive's content can be compressed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    options: dict[str, Any] = dict(description.options)
    evidence = {}
    if any(question.setting.partition("=")[0].endswith("samples_in_file") for question in description.questions):
        is_one = reads.samples == len(reads.files)
        options["samples_in_file"] = "one" if is_one else "stacked"
        evidence["samples_in_file"] = f"the program's data set has {reads.samples} samples in {len(reads.files)} files"
    if options.get("compressed"):
        arrays = [array for array in description.arrays if not array.note]
        full = sum(int(np.prod(array.shape or (1,))) * np.dtype(array.dtype).itemsize for array in arrays)
        kept = sum(array.stored_bytes or 0 for array in arrays)
        options["compressibility"] = round(min(max(1 - kept / full, 0.0), 1.0), 3) if full else 0.0
    per_file = 1 if options.get("samples_in_file") == "one" else None
    return Recreation(description.fields, options, samples_per_file=per_file, evidence=evidence)
