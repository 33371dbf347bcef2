"""Options that generate Arrow IPC files like existing ones: rows of a record batch, container, mapped or read."""

from __future__ import annotations

from typing import Any

from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.recreation import ObservedReads, Recreation, named_fields


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files; the description is that of one of them, or of the folder with all."""
    files = [path for path in reads.files if path.suffix in (".arrow", ".feather")] or list(reads.files)
    fields, left_out = named_fields(description.fields, reads)
    options: dict[str, Any] = {
        **description.options,
        "batch_rows": max(1, int(description.details["batch_rows"])),
        "memory_map": reads.is_mapped,
    }
    evidence = {"memory_map": f"{len(reads.calls_of('mmap'))} maps and {len(reads.read_calls)} reads of the files"}
    differences = [f"the column {name} is not generated" for name in left_out]
    if any("compressed" in note for note in description.notes):
        options["compression"] = "lz4"
        differences.append("the codec of the buffers is not known, generated ones are compressed by lz4")
    return Recreation(
        fields, options, files=len(files), data_files=files, evidence=evidence, differences=tuple(differences)
    )
