"""Description of netCDF files, classic and netCDF-4: variables, dimensions, and the variables that make a sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.sample_arrays import Candidate, choose_arrays
from dlio_torch.formats.hdf5.guard import has_signature
from dlio_torch.formats.netcdf.file import NcFile, need_netcdf4, reading

_MODELS = {
    "NETCDF4": "netCDF-4", "NETCDF4_CLASSIC": "netCDF-4, classic model", "NETCDF3_CLASSIC": "CDF-1",
    "NETCDF3_64BIT_OFFSET": "CDF-2", "NETCDF3_64BIT_DATA": "CDF-5",
}  # fmt: skip
_SCALED = ("scale_factor", "add_offset")


def describe(path: Path) -> DataDescription:
    """Describes one file; samples lie along the record dimension, or along the first dimension that variables share.

    Raises:
        DataError: no netCDF file, or a damaged one.
        MissingPackageError: netCDF4 is not installed.
    """
    return _describe(path, "netcdf")


def describe_cf(path: Path) -> DataDescription:
    """Describes one file whose coordinates are read as well; raises as :func:`describe` does."""
    return _describe(path, "netcdf_cf")


def _describe(path: Path, name: str) -> DataDescription:
    _need_library(path, name)
    with closing(NcFile(path)) as file, reading(path):
        dataset = file.dataset
        variables = list(islice(_variables(dataset), MOST))
        arrays, candidates = [], []
        for variable_path, variable in variables:
            stored, candidate = _variable(variable_path, variable)
            arrays.append(stored)
            if candidate is not None:
                candidates.append(candidate)
        records = [item.name for item in dataset.dimensions.values() if item.isunlimited()]
        sample = choose_arrays(candidates, preferred=records[0] if len(records) == 1 else None)
        details = {
            "variant": _MODELS.get(dataset.data_model, dataset.data_model),
            "dimensions": {item.name: _length(item) for item in dataset.dimensions.values()},
        }
        notes = [*_notes(dataset, name), *_scaled(variables, [item.name for item in sample.chosen]), *sample.notes]
    arrays = [replace(array, note=array.note or sample.left_out.get(array.name, "")) for array in arrays]
    if not sample.chosen and sample.question is None and not sample.notes:
        notes.append("no variable can be read as samples")
    return DataDescription(
        tuple(item.entry for item in sample.chosen),
        {},
        sample.chosen[0].rows if sample.chosen else None,
        tuple(arrays),
        tuple(notes),
        () if sample.question is None else (sample.question,),
        details,
    )


def _need_library(path: Path, name: str) -> None:
    """Raise unless netCDF4 is installed; of a netCDF-4 file, names the other library that reads it."""
    try:
        need_netcdf4(name)
    except MissingPackageError as error:
        if not has_signature(path):
            raise
        other = "or set dataset.format=hdf5, which reads this netCDF-4 file by h5py"
        raise MissingPackageError(error.message, hint=f"{error.hint}, {other}") from error


def _notes(dataset: Any, name: str) -> Iterator[str]:
    conventions = str(getattr(dataset, "Conventions", ""))
    if dataset.data_model.startswith("NETCDF4"):
        yield "an HDF5 file: dataset.format=hdf5 reads it by h5py, without the netCDF library"
    if "CF" in conventions and name == "netcdf":
        yield f"declares {conventions}: dataset.format=netcdf_cf also reads the coordinates, as xarray does"


def _scaled(variables: list[tuple[str, Any]], chosen: list[str]) -> Iterator[str]:
    names = [name for name, variable in variables if name in chosen and any(hasattr(variable, key) for key in _SCALED)]
    if names:
        yield f"{', '.join(names)}: stored with scale_factor or add_offset, which the run does not apply"


def _variables(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all variables with their paths, those of inner groups last."""
    for name, variable in group.variables.items():
        yield f"{prefix}{name}", variable
    for name, inner in group.groups.items():
        yield from _variables(inner, f"{prefix}{name}/")


def _variable(name: str, variable: Any) -> tuple[StoredArray, Candidate | None]:
    dtype, shape = variable.dtype, tuple(map(int, variable.shape))
    chunking = variable.chunking()
    chunks = tuple(chunking) if isinstance(chunking, list) else None
    filters = variable.filters() or {}
    codecs = [key for key, value in filters.items() if value and key != "complevel"]
    is_number = isinstance(dtype, np.dtype) and dtype.kind in "iuf" and isinstance(variable.datatype, np.dtype)
    shown = (dtype.name if is_number else _kind(variable)) if isinstance(dtype, np.dtype) else "string"
    note = _problem(name, variable, is_number, shape)
    stored = StoredArray(name, shown, shape, chunks, ", ".join(codecs), note=note)
    if note:
        return stored, None
    entry = FieldConfig(name, dtype.name, list(shape[1:]))
    try:
        specs_of([entry])
    except ConfigError as error:
        return replace(stored, note=error.message.removeprefix("dataset.fields: ")), None
    first = variable.dimensions[0]
    return stored, Candidate(entry, shape[0], first, first)


def _problem(name: str, variable: Any, is_number: bool, shape: tuple[int, ...]) -> str:
    """Reason why a variable cannot be read as samples; empty if it can."""
    if not is_number:
        return "no tensor holds strings, characters or user-defined types"
    if not shape:
        return "a single value, not an array of samples"
    if variable.dimensions == (name.rsplit("/", 1)[-1],):
        return "coordinates of a dimension, not samples"
    return "no elements: a dimension has length 0" if 0 in shape else ""


def _kind(variable: Any) -> str:
    return "char" if variable.dtype.kind == "S" else str(variable.datatype)


def _length(dimension: Any) -> str:
    return f"{len(dimension)} (unlimited)" if dimension.isunlimited() else str(len(dimension))
