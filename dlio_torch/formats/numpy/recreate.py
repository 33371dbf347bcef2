"""Options that generate NumPy files like existing ones: arrays, and how far an archive's content can be compressed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation, compressibility


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    options: dict[str, Any] = dict(description.options)
    evidence, fields = {}, description.fields
    is_one = reads.samples == len(reads.files)
    if any(question.setting.partition("=")[0].endswith("samples_in_file") for question in description.questions):
        options["samples_in_file"] = "one" if is_one else "stacked"
    elif is_one and (description.samples or 1) > 1:  # axes of equal length, which are no samples for the program
        options["samples_in_file"], fields = "one", _whole(description)
    if "samples_in_file" in options:
        evidence["samples_in_file"] = f"the program's data set has {reads.samples} samples in {len(reads.files)} files"
    if options.get("compressed"):
        options["compressibility"] = _compressibility(description)
    options |= reads.buffer_option()
    per_file = 1 if options.get("samples_in_file") == "one" else None
    differences = ("the files are mapped into memory, generated ones are read",) if reads.is_mapped else ()
    return Recreation(fields, options, samples_per_file=per_file, evidence=evidence, differences=differences)


def _whole(description: DataDescription) -> tuple[FieldConfig, ...]:
    """Whole arrays as fields."""
    shapes = {array.name: list(array.shape or ()) for array in description.arrays}
    return tuple(FieldConfig(entry.name, entry.dtype, shapes[entry.name]) for entry in description.fields)


def _compressibility(description: DataDescription) -> float:
    arrays = [array for array in description.arrays if not array.note]
    full = sum(int(np.prod(array.shape or (1,))) * np.dtype(array.dtype).itemsize for array in arrays)
    return compressibility(full, sum(array.stored_bytes or 0 for array in arrays))
