"""Description of flat binary records with an index, as Megatron-LM writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.buffered_file import companion_path
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.indexed_binary.index import SUFFIX, SequenceIndex, read_index
from dlio_torch.units import counted

FIELD = "tokens"
"""Name of the array, which the files do not state."""
_SURVEYED = 1 << 20  # sequences of which the lengths are looked at
_DATA = ".bin"


def describe(path: Path) -> DataDescription:
    """Describes a ``.bin`` file by its index; of one without an index, the arrays are an open question.

    Raises:
        DataError: missing, or the index is damaged or does not fit.
    """
    place = companion_path(path, _DATA, SUFFIX)
    with os_errors(path):
        size = path.stat().st_size
    if not place.exists():
        question = OpenQuestion(
            f"{path.name} has no index ({place.name}), and does not state the arrays of a sample",
            "dataset.fields=[{name: data, dtype: int32, shape: [64]}]",
        )
        return DataDescription(options={"index": False}, questions=(question,))
    index = read_index(place)
    if not len(index):
        raise DataError(f"{place} names no sequences", hint="choose another dataset.path")
    index.check(size)
    lengths = index.lengths[:_SURVEYED].astype(np.int64)
    dtype = index.dtype.name
    if (lengths == lengths[0]).all() and lengths[0]:
        field = FieldConfig(FIELD, dtype, [int(lengths[0])])
    else:
        mean, stdev = round(max(1.0, float(lengths.mean())), 3), round(float(lengths.std()), 3)
        field = FieldConfig(FIELD, dtype, [], length_mean=mean, length_stdev=stdev)
    elements = size // index.dtype.itemsize
    documents = len(index.documents) - 1
    return DataDescription(
        (field,),
        samples=len(index),
        arrays=(StoredArray(FIELD, dtype, (elements,), stored_bytes=size),),
        notes=tuple(_notes(index, documents, float(lengths.mean()))),
        details={"sequences": len(index), "documents": documents},
    )


def _notes(index: SequenceIndex, documents: int, mean: float) -> list[str]:
    notes = [f"{counted(len(index), 'sequence')} in {counted(documents, 'document')}; a sample is a sequence"]
    if mean >= 2:
        cut = f"{{name: {FIELD}, dtype: {index.dtype.name}, shape: [2048]}}"
        notes.append(
            "for samples of 2048 tokens that are cut from shuffled sequences, as GPTDataset cuts them: "
            f"dataset.binary.document_mean={mean:.0f} 'dataset.fields=[{cut}]'"
        )
    return notes
