"""Description of a safetensors file of unknown origin, from its header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.sample_arrays import Candidate, choose_arrays, split_sets
from dlio_torch.formats.safetensors.tensor_header import STAND_INS, StoredTensor, read_header
from dlio_torch.units import counted

_MOST_SHOWN = 4


def describe(path: Path) -> DataDescription:
    """Describes a file.

    The header does not state what a sample is.  Arrays without a common first axis can only be one sample; where all
    have one, both are possible, and the user must say.  Names that differ in their split alone, such as ``x_train`` and
    ``x_test``, mean rows of several sets, of which the user must choose one.

    Args:
        path: a file of safetensors.

    Raises:
        DataError: it is none, or damaged.
    """
    entries, texts = read_header(path)
    arrays = tuple(_stored(name, entry) for name, entry in list(entries.items())[:MOST])
    readable = {name: e for name, e in entries.items() if e.read_as is not None and 0 not in e.shape}
    details: dict[str, Any] = {"metadata": texts} if texts else {}
    if not readable:
        question = OpenQuestion("the file has no array that can be read", "dataset.fields=[{name: data, shape: [64]}]")
        return DataDescription(arrays=arrays, questions=(question,), details=details)
    notes = _lacking(readable)
    firsts = {entry.shape[0] if entry.shape else -1 for entry in readable.values()}
    as_file = [_field(name, entry.shape, entry) for name, entry in readable.items()]
    candidates = [
        Candidate(_field(name, entry.shape[1:], entry), entry.shape[0], entry.shape[0])
        for name, entry in readable.items()
        if entry.shape
    ]
    choice = choose_arrays(candidates, numbers_tell=False) if split_sets(candidates) else None
    if choice is not None and choice.question is not None:
        notes += [*choice.notes, f"for one sample a file: dataset.safetensors.samples=file '{_as_setting(as_file)}'"]
        arrays = tuple(replace(array, note=array.note or choice.left_out.get(array.name, "")) for array in arrays)
        return DataDescription((), {}, None, arrays, tuple(notes), (choice.question,), details)
    if len(firsts) > 1 or -1 in firsts:
        notes.append("its arrays have no common first axis, so that the file is one sample (a model's weights, too)")
        return DataDescription(
            tuple(as_file), {"samples": "file"}, 1, arrays, tuple(notes), details=details
        )  # fmt: skip
    rows = firsts.pop()
    fields = tuple(_field(name, entry.shape[1:], entry) for name, entry in readable.items())
    question = OpenQuestion(
        f"the header does not state whether the first axis, of length {rows}, counts samples or the file is one sample "
        f"(then set dataset.safetensors.samples=file and '{_as_setting(as_file)}')",
        "dataset.safetensors.samples=rows",
    )
    return DataDescription(fields, {}, rows, arrays, tuple(notes), (question,), details)


def _stored(name: str, entry: StoredTensor) -> StoredArray:
    note = ""
    if entry.read_as is None:
        note = f"element type {entry.dtype} cannot be read into tensors"
    elif 0 in entry.shape:
        note = "it is empty"
    return StoredArray(name, entry.dtype, entry.shape, stored_bytes=entry.end - entry.begin, note=note)


def _field(name: str, shape: tuple[int, ...], entry: StoredTensor) -> FieldConfig:
    assert entry.read_as is not None
    return FieldConfig(name, entry.read_as.name, list(shape))


def _lacking(entries: Mapping[str, StoredTensor]) -> list[str]:
    """Notes on arrays whose element type NumPy lacks."""
    notes = []
    for stored, dtype in STAND_INS.items():
        names = [name for name, entry in entries.items() if entry.dtype == stored]
        if names:
            shown = ", ".join(names[:_MOST_SHOWN]) + (" ..." if len(names) > _MOST_SHOWN else "")
            notes.append(
                f"{shown}: NumPy has no type {stored}; the bytes of its elements are read, as {dtype.name} "
                f"({counted(len(names), 'array')})"
            )
    return notes


def _as_setting(fields: list[FieldConfig]) -> str:
    """The value of ``dataset.fields``, as the command line takes it."""
    parts = (f"{{name: {field.name}, dtype: {field.dtype}, shape: {field.shape}}}" for field in fields)
    return f"dataset.fields=[{', '.join(parts)}]"


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add the arrays of a file to ``content``.

    Raises:
        DataError: it is damaged.
    """
    entries, _ = read_header(path)
    content["arrays"] = [
        {"name": name, "dtype": entry.dtype, "shape": list(entry.shape)} for name, entry in list(entries.items())[:MOST]
    ]
    content["complete"] = len(entries) <= MOST
