"""Description of an MDS folder, or of a single shard, from its index and the head of a shard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.mds.encodings import PICKLE
from dlio_torch.formats.mds.facts import INDEX
from dlio_torch.formats.mds.index import IndexedShard, read_index, unpacking_hint
from dlio_torch.formats.mds.shard import WORD, ShardHead, StoredColumn, read_head, read_sizes

_SURVEYED = 256  # samples of which the sizes of columns are read

_Sizes = dict[str, npt.NDArray[np.int64]]
"""Stored bytes of each column of variable size in some samples."""


def describe(path: Path) -> DataDescription:
    """Describes a shard, or a folder of shards with an index.

    Raises:
        DataError: damaged, or there are only compressed shards.
    """
    if not path.is_dir():
        return _description(path, None)
    index = read_index(path) or {}
    if not index:
        raise DataError(f"{path / INDEX} names no shards", hint="write the data set again by MDSWriter")
    present = [name for name in index if (path / name).is_file()]
    if not present:
        name, entry = next(iter(index.items()))
        if entry.compressed:
            raise DataError(
                f"{path} holds compressed shards ({entry.compressed}), which MosaicML Streaming unpacks into its local "
                "folder before it reads them",
                hint=unpacking_hint(path / entry.compressed),
            )
        raise DataError(f"{path} holds none of the shards that its index names ({name})", hint="complete the folder")
    return _description(path / present[0], index, len(index) - len(present))


def _description(shard: Path, index: Mapping[str, IndexedShard] | None, missing: int = 0) -> DataDescription:
    head = read_head(shard)
    sizes = _variable_sizes(shard, head)
    fields, arrays = [], []
    for column in head.columns:
        field = _field(column, sizes, shard, head)
        note = "" if isinstance(field, FieldConfig) else field
        if isinstance(field, FieldConfig):
            fields.append(field)
        encoding = column.parsed
        shape = encoding.shape if encoding.kind in ("number", "array") else None
        arrays.append(StoredArray(column.name, column.encoding, shape, stored_bytes=column.size, note=note))
    notes = [
        f"column {column.name}: the bytes of pickled objects are read, and never unpickled"
        for column in head.columns
        if column.encoding == PICKLE
    ]
    if missing:
        notes.append(f"{missing} of the {len(index or {})} shards of {INDEX} are not there")
    samples = head.num_samples if index is None else sum(entry.samples for entry in index.values())
    details = {"shards": 1 if index is None else len(index)}
    return DataDescription(tuple(fields), {}, samples, tuple(arrays), tuple(notes), (), details)


def _field(column: StoredColumn, variable: _Sizes, shard: Path, head: ShardHead) -> FieldConfig | str:
    """The field that reads a column, or the reason why none does."""
    encoding = column.parsed
    if encoding.kind == "other":
        return f"encoding {column.encoding} has no fixed element type"
    field = FieldConfig(column.name, encoding.dtype, list(encoding.shape))
    if column.name in variable:
        sizes = variable[column.name]
        if encoding.kind == "ragged":
            axes = _axes(column, variable, shard, head)
            if axes != 1:
                return f"arrays of {axes} axes, whose shapes differ from sample to sample"
            sizes = np.maximum(1, (sizes - 2) // np.dtype(encoding.dtype).itemsize)
        mean, stdev = float(max(1.0, sizes.mean())), float(sizes.std())
        field = FieldConfig(column.name, encoding.dtype, [], length_mean=round(mean, 3), length_stdev=round(stdev, 3))
    try:
        specs_of([field])
    except DlioError as error:
        return error.message
    return field


def _variable_sizes(shard: Path, head: ShardHead) -> _Sizes:
    """Stored bytes of each column of variable size in the first samples of a shard; without samples, 0."""
    names = [column.name for column in head.columns if column.size is None]
    begins = head.offsets[:-1][:_SURVEYED]
    table = read_sizes(shard, begins, len(names)) if names and len(begins) else np.zeros((1, len(names)), np.int64)
    return {name: table[:, number] for number, name in enumerate(names)}


def _axes(column: StoredColumn, variable: _Sizes, shard: Path, head: ShardHead) -> int:
    """Number of axes of a ragged column in the first sample."""
    if not head.num_samples:
        return 1
    before = head.columns[: head.columns.index(column)]
    sizes = [int(variable[other.name][0]) if other.size is None else other.size for other in before]
    with os_errors(shard), shard.open("rb", buffering=0) as file:
        file.seek(int(head.offsets[0]) + WORD * len(variable) + sum(sizes))
        return (file.read(1) or b"\0")[0] >> 2
