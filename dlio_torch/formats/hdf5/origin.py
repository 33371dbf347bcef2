"""Programs and libraries that wrote an HDF5 file, recognised by the marks that they leave in it."""

from __future__ import annotations

from typing import Any

import h5py

_USER_BLOCK_MATLAB = b"MATLAB 7.3"


def origin_of(file: h5py.File) -> tuple[str, ...]:
    """One line for each mark of another format; none for a file of plain HDF5 arrays.

    Marks: ``_NCProperties`` (netCDF-4), ``PYTABLES_FORMAT_VERSION`` (PyTables, pandas), ``keras_version`` and
    ``layer_names`` (Keras), ``encoding-type`` (AnnData), ``NX_class`` (NeXus), the user block of MATLAB 7.3.
    """
    marks = {name: _text(file.attrs, name) for name in file.attrs}
    names = set(file)
    lines = []
    if "_NCProperties" in marks:
        lines.append("a netCDF-4 file: dataset.format=netcdf reads it through the netCDF library")
    if "PYTABLES_FORMAT_VERSION" in marks:
        lines.append(
            f"written by PyTables {marks['PYTABLES_FORMAT_VERSION']}, perhaps for pandas: its tables are compound "
            "arrays, which are not read; export them as Parquet or as plain arrays"
        )
    if "keras_version" in marks or "layer_names" in marks or {"_layer_checkpoint_dependencies", "layers"} & names:
        lines.append("weights of a Keras model: a checkpoint, not samples")
    if "encoding-type" in marks:
        lines.append(
            f"written by {marks['encoding-type']}: a sparse matrix in it is three arrays, which no field reads"
        )
    if "NX_class" in marks or any("NX_class" in _attributes(file, name) for name in list(names)[:8]):
        lines.append("a NeXus file")
    if ".silo" in names:
        lines.append("a Silo file: dataset.format=silo reads it through the Silo library")
    if _user_block(file).startswith(_USER_BLOCK_MATLAB):
        lines.append("written by MATLAB (v7.3), whose axes are in reverse order: the first axis is the last one there")
    return tuple(lines)


def user_block_bytes(file: h5py.File) -> int:
    """Bytes before the HDF5 content of a file."""
    return int(file.userblock_size)


def _user_block(file: h5py.File) -> bytes:
    if not user_block_bytes(file):
        return b""
    with open(file.filename, "rb") as raw:
        return raw.read(len(_USER_BLOCK_MATLAB))


def _attributes(file: h5py.File, name: str) -> Any:
    link = file.get(name, getlink=True)
    return file[name].attrs if isinstance(link, h5py.HardLink) else {}


def _text(attributes: Any, name: str) -> str:
    try:
        value = attributes[name]
    except (OSError, RuntimeError, LookupError, ValueError, TypeError):  # a type that NumPy has not, or damage
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
