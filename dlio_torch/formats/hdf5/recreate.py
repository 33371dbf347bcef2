"""Options that generate HDF5 files like existing ones: chunks, filters, and how far the content can be compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.recreation import ObservedReads, Recreation, compressibility, fitted_compressibility
from dlio_torch.formats.hdf5.observed_arrays import array_opens, chunk_sizes, crop_of, names_read
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.volumes import volume_ratio

_GZIP = re.compile(r"gzip (\d)")
_LZF = "lzf"
_OFTEN = 0.5  # calls for each sample, from which on they belong to it
_MOST_OF_FILE = 0.95


def recreate(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files, which are alike; the description is that of one of them."""
    stored = {array.name: array for array in description.arrays if not array.note or array.shape}
    fields, evidence = _fields(description, stored, reads)
    arrays = [stored[entry.name] for entry in fields]
    options = {**description.options, **_compression(arrays)}
    _add_reading(options, evidence, reads, arrays)
    differences = tuple(_differences(arrays))
    crop = crop_of(arrays, reads)
    if crop is None:
        return Recreation(tuple(fields), options, evidence=evidence, differences=differences)
    options |= {"crop": list(crop), **_spread(arrays[0], options, reads.files[0])}
    evidence["crop"] = f"batches hold boxes of {_by(crop)} out of arrays of {_by(arrays[0].shape or ())}"
    whole = tuple(replace(entry, shape=list(stored[entry.name].shape or ())) for entry in fields)
    return Recreation(whole, options, format="hdf5_crops", evidence=evidence, differences=differences)


def _spread(array: StoredArray, options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Mean and standard deviation of the constant content, so that chunks of whole arrays have sizes like these."""
    sizes = chunk_sizes(path, array.name)
    if not options.get("compressibility") or not len(sizes) or not array.chunks:
        return {}
    whole = int(np.prod(array.chunks)) * np.dtype(array.dtype).itemsize
    level = options.get("compression_level", Hdf5Config().compression_level)
    trial = partial(volume_ratio, array.dtype, array.chunks, level)
    mean = fitted_compressibility(float(sizes.mean()) / whole, trial)
    less = fitted_compressibility(float(sizes.mean() + sizes.std()) / whole, trial)
    return {"compressibility": mean, "compressibility_stdev": round(abs(mean - less), 4)}


def _fields(
    description: DataDescription, stored: Mapping[str, StoredArray], reads: ObservedReads
) -> tuple[list[FieldConfig], dict[str, str]]:
    """Arrays that the program read; all that make a sample, if its calls do not tell."""
    read = names_read(reads, [array for array in stored.values() if not array.note])
    described = {entry.name: entry for entry in description.fields}
    names = [name for name in described if name in read] if read else list(described)
    if not names:  # the file has several sets of arrays, and the description names another one
        names = [name for name in read if stored[name].shape]
    fields = [described.get(name) or _row_field(stored[name]) for name in names]
    chunked = [replace(field, chunk=_chunk(stored[field.name])) for field in fields]
    evidence = f"the program read the bytes of {', '.join(read)} out of {len(stored)} arrays"
    return chunked, {"fields": evidence} if read else {}


def _row_field(array: StoredArray) -> FieldConfig:
    """An array whose first axis counts samples."""
    return FieldConfig(array.name, array.dtype, list(array.shape or ())[1:])


def _chunk(array: StoredArray) -> list[int] | None:
    return list(array.chunks) if array.chunks else None


def _add_reading(
    options: dict[str, Any], evidence: dict[str, str], reads: ObservedReads, arrays: Sequence[StoredArray]
) -> None:
    """Add how the program opened its files and arrays."""
    opens = reads.opens_per_sample()
    cache_bytes = options.get("chunk_cache_bytes", Hdf5Config().chunk_cache_bytes)
    if opens > _OFTEN:
        options["reopen"] = "file"
        evidence["reopen"] = f"{opens:.2f} opens for each sample"
    elif again := array_opens(reads, arrays, cache_bytes):
        options["reopen"] = "array"
        evidence["reopen"] = again
    if _loads_files(reads):
        options["driver"] = "core"
        evidence["driver"] = "each open reads the whole file by one call"


def _loads_files(reads: ObservedReads) -> bool:
    """Whether the largest read of a file has nearly all of its bytes, as the driver ``core`` reads it."""
    largest = reads.read_calls.groupby("file", observed=True)["bytes"].max()
    sizes = {str(path): path.stat().st_size for path in reads.files}
    return len(largest) > 0 and all(
        size >= _MOST_OF_FILE * sizes.get(str(name), np.inf) for name, size in largest.items()
    )


def _compression(arrays: Sequence[StoredArray]) -> dict[str, Any]:
    """Filter of the arrays, and the share of constant content with which they take as many bytes."""
    compressed = [array for array in arrays if _codec(array)]
    if not compressed:
        return {}
    codec = _codec(compressed[0])
    options: dict[str, Any] = {"compression": codec}
    level = _GZIP.search(compressed[0].compression)
    if level is not None:
        options["compression_level"] = int(level[1])
    full = sum(_bytes(array) for array in compressed)
    return options | {"compressibility": compressibility(full, sum(array.stored_bytes or 0 for array in compressed))}


def _codec(array: StoredArray) -> str:
    """``gzip``, ``lzf`` or empty."""
    return "gzip" if _GZIP.search(array.compression) else _LZF if _LZF in array.compression else ""


def _bytes(array: StoredArray) -> int:
    return int(np.prod(array.shape or (0,))) * np.dtype(array.dtype).itemsize


def _differences(arrays: Sequence[StoredArray]) -> Iterator[str]:
    compressed = any(_codec(array) for array in arrays)
    for array in arrays:
        if compressed and array.chunks is not None and not _codec(array):
            yield f"array {array.name} is stored without compression, its generated chunks are compressed"
        others = _GZIP.sub("", array.compression).replace(_LZF, "").strip(" ,")
        if others:
            yield f"array {array.name} has the filter {others}, which generated files do not have"


def _by(lengths: Sequence[int]) -> str:
    return " x ".join(map(str, lengths))
