"""Description of a list of coordinates and of the volumes beside it; the shape of a patch is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from dlio_torch.errors import DataError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.hdf5.file import open_file, reading
from dlio_torch.formats.hdf5.guard import check_array, check_link
from dlio_torch.formats.hdf5_volume.facts import VOLUME_SUFFIX, volume_files
from dlio_torch.formats.hdf5_volume.options import VolumeConfig

_AXES = 3


def describe(path: Path) -> DataDescription:
    """Describes a list by the headers of its volumes; only reading the whole list would tell the samples.

    Raises:
        DataError: a volume is missing, damaged, or not a 3-D array of integers; or the volumes differ in shape.
    """
    arrays = [_volume(path, file) for file in volume_files(path)]
    if not arrays:
        raise DataError(
            f"{path} has no volumes beside it: files {path.name}.<name>{VOLUME_SUFFIX} with an array <name>",
            hint="put the volumes beside the list of coordinates, under these names",
        )
    first, shape = arrays[0].name, arrays[0].shape or ()
    for array in arrays:
        if array.shape != shape:
            raise DataError(
                f"{path}: volume {array.name} has shape {list(array.shape or ())}, but volume {first} {list(shape)}",
                hint="give volumes of one shape",
            )
    plain = VolumeConfig().patch
    patch = [min(edge, length) for edge, length in zip(plain, shape, strict=True)]
    options: dict[str, Any] = {
        "shape": list(shape),
        "arrays": [
            {"name": array.name, "dtype": array.dtype, "chunk": list(array.chunks or shape)} for array in arrays
        ],
    }
    question = OpenQuestion(
        "neither the list of coordinates nor the volumes state the shape of a patch",
        f"dataset.volume.patch=[{','.join(map(str, patch))}]",
    )
    return DataDescription(options=options, arrays=tuple(arrays), questions=(question,))


def _volume(path: Path, file_path: Path) -> StoredArray:
    """The array of one volume, from its header.

    Raises:
        DataError: it is missing, or cannot be read as a volume.
    """
    name = file_path.name.removeprefix(f"{path.name}.").removesuffix(VOLUME_SUFFIX)
    file = open_file(file_path, VolumeConfig().chunk_cache_bytes)
    with reading(file, file_path):
        if name in file:
            check_link(file, name, file_path)
        array = file.get(name)
        if not isinstance(array, h5py.Dataset):
            raise DataError(f"{file_path} has no array {name!r}", hint=f"name the volume's array {name}")
        check_array(array, file_path)
        dtype = array.dtype
        if len(array.shape or ()) != _AXES or dtype.kind not in "iu" or dtype.name not in DTYPES or not dtype.isnative:
            raise DataError(
                f"{file_path}: {name} holds {dtype} of shape {list(array.shape or ())}",
                hint="volumes are 3-D arrays of integers in native byte order",
            )
        stored = StoredArray(
            name, dtype.name, array.shape, array.chunks, array.compression or "", array.id.get_storage_size()
        )
    file.close()
    return stored
