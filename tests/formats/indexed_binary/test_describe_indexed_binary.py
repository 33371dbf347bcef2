"""The description of files as Megatron-LM's, from their index."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create

CODES = {"uint8": 1, "int32": 4, "uint16": 8}


def megatron(folder: Path, lengths: list[int], dtype: str, documents: list[int] | None = None) -> Path:
    """Writes a pair of files as IndexedDatasetBuilder does."""
    tokens = np.arange(sum(lengths)).astype(dtype)
    path = folder / "text_document.bin"
    path.write_bytes(tokens.tobytes())
    borders = [*range(len(lengths) + 1)] if documents is None else documents
    pointers = (np.cumsum([0, *lengths])[:-1] * tokens.itemsize).astype("<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(borders))
    tables = np.array(lengths, "<i4").tobytes() + pointers.tobytes() + np.array(borders, "<i8").tobytes()
    path.with_suffix(".idx").write_bytes(head + tables)
    return path


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("lengths", [[40, 40, 40], [7, 90, 1, 33]], ids=["fixed", "variable"])
def test_the_index_states_everything(lengths: list[int], dtype: str, tmp_path: Path) -> None:
    path = megatron(tmp_path, lengths, dtype)
    for named in (path, tmp_path):
        inspection = inspect_path(str(named))
        assert (inspection.format, inspection.files) == ("indexed_binary", 1)
        assert not inspection.description.questions
        assert inspection.description.samples == len(lengths)
    (field,) = inspection.description.fields
    assert (field.dtype, field.shape) == (dtype, [40] if lengths[0] == 40 else [])
    assert field.length_mean == (0 if lengths[0] == 40 else sum(lengths) / 4)
    fmt = create(DatasetConfig(format="indexed_binary", fields=[field]), 1)
    with closing(fmt.open(path)) as reader:
        assert reader.num_samples == len(lengths)


def test_sequences_and_documents_are_counted(tmp_path: Path) -> None:
    path = megatron(tmp_path, [7, 90, 1, 33], "uint16", documents=[0, 3, 4])
    description = inspect_path(str(path)).description
    assert description.details == {"sequences": 4, "documents": 2}
    assert description.notes[0] == "4 sequences in 2 documents; a sample is a sequence"
    assert "dataset.binary.document_mean=33" in description.notes[1]


def test_a_file_without_an_index_is_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(4096))
    inspection = inspect_path(str(path), "indexed_binary")
    assert inspection.settings()["binary"] == {"index": False}
    (question,) = inspection.description.questions
    assert question.setting.startswith("dataset.fields=")


def test_damage_is_named(tmp_path: Path) -> None:
    path = megatron(tmp_path, [7, 90, 1, 33], "uint16")
    os.truncate(path, 100)
    with pytest.raises(DataError, match=r"beyond the 100 bytes of the \.bin file"):
        inspect_path(str(path))
    os.truncate(path.with_suffix(".idx"), 40)
    with pytest.raises(DataError, match="the header counts 4 sequences"):
        inspect_path(str(path))
    megatron(tmp_path, [], "uint16")
    with pytest.raises(DataError, match="names no sequences"):
        inspect_path(str(path))
