"""Description of HDF5 files: every array with its type, chunks and filters, and the arrays that make a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.formats.core.sample_arrays import Candidate, choose_arrays
from dlio_torch.formats.hdf5.content import filter_name
from dlio_torch.formats.hdf5.element_type import ElementType, element_type
from dlio_torch.formats.hdf5.file import DAMAGE, library_cache_bytes, open_file, reading
from dlio_torch.formats.hdf5.guard import check_size
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.origin import origin_of, user_block_bytes
from dlio_torch.formats.hdf5.reader import EXTENTS
from dlio_torch.formats.hdf5.tree import MOST_MEMBERS, GroupMember, members
from dlio_torch.units import counted, format_size

_SHOWN = 3  # files of a virtual dataset
_UNWRITTEN = "no elements: an axis has length 0"


@dataclass(frozen=True)
class _Described:
    """One array.

    Attributes:
        array: as the header states it.
        candidate: as a field of a sample; ``None``: it cannot be one.
        is_lost: whether the candidate holds numbers that cannot be read.
        remark: one line for an array that can be read; empty: none.
        is_table: whether it has the type of a table of extents.
    """

    array: StoredArray
    candidate: Candidate | None = None
    remark: str = ""
    is_table: bool = False
    is_lost: bool = False


def describe(path: Path) -> DataDescription:
    """Describes one file from its headers; links to other files are not followed.

    Raises:
        DataError: no HDF5 file, a damaged one, or one that another process has open for writing.
    """
    file = open_file(path, Hdf5Config().chunk_cache_bytes)
    described: list[_Described] = []
    with reading(file, path):
        groups, complete = 0, True
        for number, member in enumerate(members(file)):
            if number >= MOST_MEMBERS or len(described) >= MOST:
                complete = False
                break
            if isinstance(member.item, h5py.Group):
                groups += 1
            else:
                described.extend(_described(member, path))
        notes = [*origin_of(file), *([] if complete else [f"only the first {len(described)} arrays are listed"])]
        details = {"groups": groups, "attributes": len(file.attrs)}
        if user_block_bytes(file):
            details["user_block_bytes"] = user_block_bytes(file)
    file.close()
    return _description(_with_tables(described), notes, details)


def _description(described: Sequence[_Described], notes: list[str], details: dict[str, int]) -> DataDescription:
    candidates = [(item.candidate, item.is_lost) for item in described if item.candidate is not None]
    sample = choose_arrays(
        [candidate for candidate, is_lost in candidates if not is_lost],
        [candidate for candidate, is_lost in candidates if is_lost],
    )
    fields = tuple(item.entry for item in sample.chosen)
    names = {entry.name for entry in fields}
    notes += [item.remark for item in described if item.remark and item.array.name in names]
    notes += sample.notes
    if not fields and sample.question is None and not sample.notes:
        notes.append("no array can be read as samples")
    left_out = sample.left_out
    chunked = any(item.array.chunks for item in described if item.candidate is not None)
    options: dict[str, Any] = {}
    if chunked and library_cache_bytes() != Hdf5Config().chunk_cache_bytes:
        options["chunk_cache_bytes"] = library_cache_bytes()
        notes.append(
            f"chunk cache of {format_size(library_cache_bytes())} for each array, the default of the installed HDF5 "
            f"{h5py.version.hdf5_version}"
        )
    return DataDescription(
        fields,
        options,
        sample.chosen[0].rows if fields else None,
        tuple(replace(item.array, note=item.array.note or left_out.get(item.array.name, "")) for item in described),
        tuple(notes),
        () if sample.question is None else (sample.question,),
        details,
    )


def _described(member: GroupMember, path: Path) -> Iterator[_Described]:
    """Describes a member of a group; nothing for a named type."""
    if member.link:
        yield _Described(StoredArray(member.path, "", note=f"{member.link}, not followed"))
    elif member.problem:
        yield _Described(StoredArray(member.path, "", note=f"cannot be opened: {member.problem}"))
    elif isinstance(member.item, h5py.Dataset):
        try:
            yield _array(member.path, member.item, path)
        except DAMAGE as error:
            yield _Described(StoredArray(member.path, "", note=f"cannot be described: {error}"))


def _array(name: str, dataset: h5py.Dataset, path: Path) -> _Described:
    kind, properties = element_type(dataset), dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        shape = _virtual_shape(properties)
        return _lost(StoredArray(name, kind.name, shape, note=_virtual(properties)), kind)
    shape = dataset.shape
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    chunks = dataset.chunks
    stored = StoredArray(
        name,
        kind.name,
        shape,
        chunks,
        ", ".join(map(filter_name, filters)),
        dataset.id.get_storage_size(),
        _problem(name, dataset, kind, filters, path),
    )
    if kind.dtype == EXTENTS and shape is not None and len(shape) == 1:
        return _Described(stored, is_table=True)
    if stored.note or shape is None:
        return _Described(stored) if h5py.h5ds.is_scale(dataset.id) else _lost(stored, kind)
    entry = FieldConfig(name, dataset.dtype.name, list(shape[1:]))
    try:
        specs_of([entry])
    except ConfigError as error:
        return _Described(replace(stored, note=error.message.removeprefix("dataset.fields: ")))
    remark = f"{name}: codes of an enumeration ({kind.codes})" if kind.codes else ""
    if not dataset.dtype.isnative:
        remark = f"{name}: elements in foreign byte order, which are turned after the read"
    return _Described(stored, Candidate(entry, shape[0], shape[0]), remark)


def _lost(array: StoredArray, kind: ElementType) -> _Described:
    """An array of numbers that cannot be read; it counts as a part of samples if it has rows."""
    if not array.shape or 0 in array.shape or not kind.is_number:
        return _Described(array)
    return _Described(array, Candidate(FieldConfig(array.name), array.shape[0], array.shape[0]), is_lost=True)


def _problem(
    name: str, dataset: h5py.Dataset, kind: ElementType, filters: Sequence[tuple[Any, ...]], path: Path
) -> str:
    """Reason why an array cannot be read as samples; empty if it can."""
    shape, properties = dataset.shape, dataset.id.get_create_plist()
    if shape is None:
        return "empty: it has a type and no elements"
    if h5py.h5ds.is_scale(dataset.id):
        return "values along an axis of other arrays (dimension scale), not samples"
    if not shape:
        return "a single value, not an array of samples"
    if kind.problem:
        return kind.problem
    if 0 in shape:
        return _UNWRITTEN
    if properties.get_external_count():
        other = properties.get_external(0)[0].decode(errors="backslashreplace")
        return f"its elements are in the external file {other}, not followed"
    for entry in filters:
        if not h5py.h5z.filter_avail(entry[0]):
            return (
                f"needs HDF5 filter {entry[0]} ({filter_name(entry)}), which this h5py has not; the package "
                "hdf5plugin has many: set HDF5_PLUGIN_PATH to its folder plugins"
            )
    try:
        size, numbers = dataset.file.id.get_filesize(), {number for number, *_ in filters}
        check_size(name, shape, dataset.chunks, dataset.dtype.itemsize, size, numbers, path)
    except DataError:
        return "larger than a file of this size can hold: it was never written, or the file is damaged"
    return ""


def _virtual_shape(properties: Any) -> tuple[int, ...] | None:
    """Shape of a virtual dataset as its header states it, without a look into the files that it refers to."""
    if not properties.get_virtual_count():
        return None
    return tuple(properties.get_virtual_vspace(0).get_simple_extent_dims())


def _virtual(properties: Any) -> str:
    count = properties.get_virtual_count()
    sources = dict.fromkeys(
        f"{properties.get_virtual_dsetname(number)} of this file"
        if properties.get_virtual_filename(number) == "."
        else properties.get_virtual_filename(number)
        for number in range(min(count, MOST))
    )
    shown = ", ".join(list(sources)[:_SHOWN]) + (f" and {len(sources) - _SHOWN} more" if len(sources) > _SHOWN else "")
    return (
        f"virtual dataset: its bytes are in other files ({shown}), which are not followed; read those files by "
        f"dataset.path, or copy the array into one file ({counted(count, 'source')})"
    )


def _with_tables(described: Sequence[_Described]) -> list[_Described]:
    """Joins arrays of rows with the tables that say which rows belong to a sample."""
    names = {item.array.name for item in described}
    tables = {item.array.name: item.array for item in described if item.is_table}
    joined = []
    for item in described:
        table = tables.get(item.array.name + EXTENTS_SUFFIX)
        if item.candidate is not None and table is not None and table.shape:
            samples, entry = table.shape[0], item.candidate.entry
            mean = max(item.candidate.rows / max(samples, 1), 1e-3)
            variable = FieldConfig(entry.name, entry.dtype, entry.shape, length_mean=round(mean, 3))
            joined.append(replace(item, candidate=Candidate(variable, samples, samples)))
        elif item.is_table and (array := item.array.name.removesuffix(EXTENTS_SUFFIX)) in names:
            joined.append(_Described(replace(item.array, note=f"rows of each sample in {array}")))
        else:
            joined.append(item)
    return joined
