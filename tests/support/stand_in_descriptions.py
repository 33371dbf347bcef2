"""Descriptions of HDF5 and NPY files for tests of ``inspect`` itself, whatever the formats' own say."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.registry import facts


def install(patch: pytest.MonkeyPatch) -> None:
    """Let the formats hdf5 and npy describe files by the functions below."""
    for name in ("hdf5", "npy"):
        patch.setattr(type(facts(name)), "describe", f"{__name__}:describe_{name}")
        patch.setattr(type(facts(name)), "compares_files", False)


def describe_hdf5(path: Path) -> DataDescription:
    """Every array at the top of the file is a field; a file without arrays has no description."""
    try:
        with h5py.File(path) as file:
            arrays = {name: (item.dtype, item.shape) for name, item in file.items() if isinstance(item, h5py.Dataset)}
    except OSError as error:
        raise DataError(f"{path} is damaged: {error}", hint="replace the file") from error
    fields = [FieldConfig(name, str(dtype), list(shape[1:])) for name, (dtype, shape) in arrays.items()]
    stored = [StoredArray(name, str(dtype), shape) for name, (dtype, shape) in arrays.items()]
    samples = min((shape[0] for _, shape in arrays.values()), default=0)
    return DataDescription(tuple(fields), samples=samples, arrays=tuple(stored), notes=("a stand-in",))


def describe_npy(path: Path) -> DataDescription:
    """The name of the array, which no NPY file states, is a question."""
    array = np.load(path, mmap_mode="r")
    question = OpenQuestion("the name is unknown", f"dataset.fields=[{{name: x, dtype: {array.dtype}, shape: [3]}}]")
    return DataDescription(samples=len(array), questions=(question,), details={"order": "C"})
