"""Arrays in NumPy files of unknown origin, from their headers alone."""

from __future__ import annotations

import ast
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.batch import is_reserved
from dlio_torch.formats.core.buffered_file import HEADER_PARSERS, PARSING, refusing
from dlio_torch.formats.core.data_description import StoredArray
from dlio_torch.formats.numpy.zip_members import MEMBER

_HEAD = 1 << 16
_METHODS = {zipfile.ZIP_STORED: "", zipfile.ZIP_DEFLATED: "deflate"}
_RESERVED = "its name is reserved for what dlio_torch adds to a batch"
_KINDS = {
    "S": "byte strings",
    "U": "text",
    "V": "records with named fields",
    "M": "dates",
    "m": "time spans",
    "c": "complex numbers",
}


@dataclass(frozen=True)
class ArrayHeader:
    """Header of an array in a file of unknown origin.

    Attributes:
        dtype: type of the elements, in NumPy's words.
        shape: of the array; empty if it cannot be read.
        fortran_order: the first axis changes fastest.
        compression: name of the codec; empty: none.
        stored_bytes: in the file.
        problem: one line on why it cannot be read; empty: it can.
    """

    dtype: str
    shape: tuple[int, ...]
    fortran_order: bool = False
    compression: str = ""
    stored_bytes: int | None = None
    problem: str = ""

    def stored(self, name: str, note: str = "") -> StoredArray:
        """The same for a listing; ``note`` is used where the array can be read."""
        known = self.dtype != "?"
        return StoredArray(
            name,
            self.dtype,
            self.shape if known else None,
            None,
            self.compression,
            self.stored_bytes,
            self.problem or note,
        )


def headers_of_array(path: Path) -> dict[str, ArrayHeader]:
    """Header of a single-array file, under the name ``data``.

    Raises:
        DataError: it is no such file.
    """
    with refusing(path), open(path, "rb") as file:
        header = _header(file, os.fstat(file.fileno()).st_size, "")
    return {"data": header}


def headers_of_archive(path: Path) -> dict[str, ArrayHeader]:
    """Headers of the members of an archive, by the names of the arrays.

    Raises:
        DataError: it is no archive, or is damaged.
    """
    headers: dict[str, ArrayHeader] = {}
    with refusing(path), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            method = _METHODS.get(info.compress_type, f"zip method {info.compress_type}")
            if not info.filename.endswith(MEMBER):
                problem = "is not an array of NumPy's"
                headers[info.filename] = ArrayHeader("?", (), False, method, info.compress_size, problem)
                continue
            with archive.open(info) as member:
                headers[info.filename.removesuffix(MEMBER)] = _header(member, info.compress_size, method)
    return headers


def _header(file: IO[bytes], stored: int, method: str) -> ArrayHeader:
    head = io.BytesIO(file.read(_HEAD))
    version = np.lib.format.read_magic(head)
    if version not in HEADER_PARSERS:
        return ArrayHeader(
            "?", (), False, method, stored, f"has version {version[0]}.{version[1]} of the NPY header: not supported"
        )
    try:
        with PARSING:
            shape, fortran, dtype = HEADER_PARSERS[version](head)
    except ValueError as error:
        problem = _unknown_type(head.getvalue())
        if not problem:
            raise ValueError(f"its header is damaged ({error})") from error
        return ArrayHeader("?", (), False, method, stored, problem)
    return ArrayHeader(str(dtype), tuple(shape), fortran, method, stored, _problem(dtype, shape))


def _unknown_type(head: bytes) -> str:
    """Says that a sound header names a type which NumPy does not know; empty if the header is not sound."""
    begin, end = head.find(b"{"), head.find(b"}")
    try:
        described = ast.literal_eval(head[begin : end + 1].decode("latin1"))
        return f"has the element type {described['descr']!r}, which NumPy does not know"
    except (ValueError, SyntaxError, KeyError, TypeError):
        return ""


def _problem(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> str:
    if dtype.hasobject:
        return "pickled objects, which dlio_torch never loads"
    if dtype.kind in _KINDS:
        return f"{_KINDS[dtype.kind]}: tensors cannot hold them"
    if dtype.name not in DTYPES:
        return "an element type that tensors do not have"
    if not dtype.isnative:
        return "stored in the other byte order, which is not supported"
    if any(length == 0 for length in shape):
        return "has an axis of length 0"
    return ""


def in_all(files: Mapping[Path, Mapping[str, ArrayHeader]]) -> dict[str, str]:
    """Why an array of the first file cannot be read from all files, by its name; empty text: it can."""
    first = next(iter(files.values()))
    problems: dict[str, str] = {}
    for name, header in first.items():
        problems[name] = header.problem or (_RESERVED if is_reserved(name) else "")
        for path, others in files.items():
            other = others.get(name)
            if problems[name]:
                break
            if other is None:
                problems[name] = f"is missing in {path.name}"
            elif other.problem or other.dtype != header.dtype:
                problems[name] = f"is {other.dtype} in {path.name}" if not other.problem else other.problem
            elif len(other.shape) != len(header.shape):
                problems[name] = f"has {len(other.shape)} axes in {path.name}, and {len(header.shape)} in others"
    return problems
