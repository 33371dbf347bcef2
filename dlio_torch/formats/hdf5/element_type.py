"""Element types of HDF5 arrays: their names, and why tensors cannot hold some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from dlio_torch.formats.core.array_specs import DTYPES

_SHOWN = 6  # members of a compound type, names of an enumeration
_NUMBERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT)
_REMEDIES = {
    "strings": "no tensor holds strings; store numbers, or bytes as uint8",
    "compound": "no tensor holds compound elements; store each member as an array of its own",
    "references": "no tensor holds references",
    "opaque": "no tensor holds opaque elements; store bytes as uint8",
    "times": "no tensor holds times; store them as int64",
}


@dataclass(frozen=True)
class ElementType:
    """Type of the elements of an array.

    Attributes:
        name: in NumPy's words where NumPy has the type.
        dtype: in NumPy; ``None``: NumPy has no such type.
        problem: why no tensor holds such elements, and the remedy; empty: a tensor does.
        codes: names of the values of an enumeration.
    """

    name: str
    dtype: np.dtype[Any] | None
    problem: str = ""
    codes: str = ""

    @property
    def is_number(self) -> bool:
        """Whether elements are numbers or truth values, such as samples are made of."""
        return self.dtype is not None and self.dtype.kind in "biufc"


def element_type(array: h5py.Dataset) -> ElementType:
    """The element type of an array, from its header."""
    stored = array.id.get_type()
    try:
        dtype = array.dtype
    except TypeError:  # NumPy has no such type
        if stored.get_class() == h5py.h5t.TIME:
            return ElementType("time", None, _REMEDIES["times"])
        return ElementType(f"HDF5 class {stored.get_class()}", None, "NumPy has no such type")
    kind = stored.get_class()
    if kind == h5py.h5t.STRING:
        size = "variable length" if stored.is_variable_str() else f"{stored.get_size()} bytes"
        return ElementType(f"string ({size})", dtype, _REMEDIES["strings"])
    if kind == h5py.h5t.VLEN:
        inner = h5py.check_vlen_dtype(dtype)
        problem = "each element is a list of its own length; store all rows in one array, and their counts in another"
        return ElementType(f"lists of {inner}", dtype, problem)
    if kind == h5py.h5t.REFERENCE:
        return ElementType("reference", dtype, _REMEDIES["references"])
    if kind == h5py.h5t.ARRAY:
        inner, lengths = dtype.subdtype or (dtype, ())
        problem = f"each element is an array of {list(lengths)}; store these axes as axes of the dataset"
        return ElementType(f"{inner} {list(lengths)}", dtype, problem)
    if kind == h5py.h5t.OPAQUE:
        return ElementType(_plain(dtype), dtype, _REMEDIES["times" if dtype.kind in "mM" else "opaque"])
    return _number(stored, dtype) if dtype.kind in "biufc" else _compound(dtype)


def is_numpy_type(array: h5py.Dataset) -> bool:
    """Whether the stored elements are bit for bit those of NumPy's type; h5py converts others while it reads."""
    stored = array.id.get_type()
    return stored.get_class() not in _NUMBERS or bool(stored == h5py.h5t.py_create(array.dtype))


def _number(stored: Any, dtype: np.dtype[Any]) -> ElementType:
    if dtype.kind == "c":
        return ElementType(dtype.name, dtype, "no field holds complex numbers; store real and imaginary parts")
    name = _plain(dtype)
    if stored.get_class() in _NUMBERS and stored != h5py.h5t.py_create(dtype):
        return ElementType(_unusual(stored), dtype, f"NumPy has no such type; h5py converts it to {name}; store {name}")
    if dtype.name not in DTYPES:
        return ElementType(name, dtype, f"no tensor holds {name}; store float64")
    codes = h5py.check_enum_dtype(dtype)
    return ElementType(name, dtype, codes=_codes(codes) if codes else "")


def _unusual(stored: Any) -> str:
    if stored.get_class() == h5py.h5t.INTEGER:
        return f"integer of {stored.get_precision()} bits in {stored.get_size()} bytes"
    sign, _, exponent, _, mantissa = stored.get_fields()
    known = {(15, 8, 7): "bfloat16", (7, 4, 3): "float8_e4m3", (7, 5, 2): "float8_e5m2"}
    return known.get(
        (sign, exponent, mantissa), f"float of {stored.get_precision()} bits, {exponent} of them the exponent"
    )


def _compound(dtype: np.dtype[Any]) -> ElementType:
    fields: Mapping[str, Any] = dtype.fields or {}
    parts = [f"{name} {_plain(entry[0])}" for name, entry in list(fields.items())[:_SHOWN]]
    more = ", ..." if len(fields) > _SHOWN else ""
    return ElementType(f"compound ({', '.join(parts)}{more})", dtype, _REMEDIES["compound"])


def _plain(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative and dtype.kind != "V" else str(dtype)


def _codes(codes: Mapping[str, int]) -> str:
    shown = ", ".join(f"{value} {name}" for name, value in list(codes.items())[:_SHOWN])
    return shown + (", ..." if len(codes) > _SHOWN else "")
