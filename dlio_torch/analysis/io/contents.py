"""What lies in a data file: its arrays or records, from headers and framing, without reading the data.

Nothing here trusts the file.  A damaged one gives what could be read and an ``error``; lists are cut at
:data:`MOST`, and say so; links out of an HDF5 file are not followed, pickled objects not loaded, and of
compressed streams only the beginning is unpacked.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dlio_torch.analysis.io.contents_hdf5 import hdf5_contents
from dlio_torch.errors import DlioError
from dlio_torch.formats.netcdf.classic_header import read_layout
from dlio_torch.formats.tfrecord.example_proto import wire_features
from dlio_torch.formats.tfrecord.framing import CRC, FRAMING, GZIP_MAGIC, HEADER
from dlio_torch.units import format_size

MOST = 1000
"""Arrays, members or columns that are listed at most."""
_MOST_RECORDS = 1_000_000
_MOST_UNPACKED = 256 << 20  # bytes of a compressed stream
_MOST_FEATURES = 16 << 20  # bytes of a record that is looked into
_MOST_LINES = 64 << 20  # bytes in which lines are counted
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_NPY_HEAD = 1 << 16
_DELIMITERS = ",\t; "
_DAMAGE = (EOFError, ValueError, LookupError, struct.error, zlib.error, zipfile.BadZipFile, RuntimeError)


def summarise(path: Path | str) -> dict[str, Any]:
    """What lies in a file; JSON-able.

    Args:
        path: HDF5, netCDF, TFRecord (gzipped, too), NPZ, NPY, Parquet, CSV, PNG or JPEG, known by its content, CSV and
            damaged TFRecord by their names; any other file gives its size only.

    Returns:
        ``path``, ``bytes`` (None: there is no such file), ``format`` (None: not known), ``summary``, one line of text,
        ``error``, why something could not be read, else None; and what the format has:

        - hdf5: ``datasets``, each ``path``, ``dtype``, ``shape``, ``chunks``, ``filters``, ``stored_bytes``,
          ``logical_bytes``, ``offset`` (where contiguous data begin), ``attributes``; ``groups``, ``links`` (not
          followed), ``attributes``, ``complete``
        - tfrecord: ``records``, ``record_bytes`` (``min``, ``mean``, ``max``), ``compressed``, ``features`` of the
          first record, ``complete``
        - npz: ``arrays`` (``name``, ``dtype``, ``shape``, ``stored_bytes``, ``logical_bytes``), ``complete``; npy the
          fields of one array
        - netcdf (classic; netCDF-4 is HDF5): ``arrays`` with ``offset``, where the first element lies, and ``step``,
          bytes from one record to the next, where they lie in records; ``complete``
        - parquet: ``rows``, ``row_groups``, ``columns``; csv: ``columns``, ``lines``; images: ``width``, ``height``,
          ``mode``
    """
    place = Path(path)
    found: dict[str, Any] = {"path": str(path), "bytes": None, "format": None, "summary": "", "error": None}
    try:
        found["bytes"] = place.stat().st_size
        if not place.is_file():
            raise ValueError("it is no regular file")
        with open(place, "rb") as file:
            head = file.read(16)
        found["format"] = kind = _kind(place, head)
        if kind is not None:
            _READERS[kind](place, found)
    except DlioError as error:
        found["error"] = str(error)
    except ImportError as error:
        found["error"] = f"a package is missing: {error}"
    except OSError as error:
        found["error"] = error.strerror or str(error)
    except _DAMAGE as error:
        found["error"] = str(error) or type(error).__name__
    found["summary"] = _line(found)
    return found


def _kind(path: Path, head: bytes) -> str | None:
    name = path.name.lower()
    for magic, kind in _MAGICS.items():
        if head.startswith(magic):
            return kind
    if head.startswith(GZIP_MAGIC):
        return "tfrecord" if "tfrecord" in name else None
    if "tfrecord" in name or _is_record(path, head):
        return "tfrecord"
    if name.endswith((".csv", ".tsv")):
        return "csv"
    if name.endswith((".h5", ".hdf5")):
        return "hdf5"  # behind a user block, or damaged
    return None


def _is_record(path: Path, head: bytes) -> bool:
    """Whether the file begins with the length of a record and the checksum of that."""
    if len(head) < HEADER.size or HEADER.unpack_from(head)[0] + FRAMING > path.stat().st_size:
        return False
    try:
        from dlio_torch.formats.tfrecord.framing import crc32c, masked

        return bool(masked(crc32c()(0, head[:8])) == HEADER.unpack_from(head)[1])
    except DlioError:  # the package that computes checksums is not installed
        return False


def _hdf5(path: Path, found: dict[str, Any]) -> None:
    found |= {"datasets": [], "groups": 0, "links": 0, "attributes": 0, "complete": False}
    hdf5_contents(path, found, MOST)


def _tfrecord(path: Path, found: dict[str, Any]) -> None:
    found |= {"records": 0, "record_bytes": None, "compressed": False, "features": None, "complete": False}
    with open(path, "rb") as plain, contextlib.ExitStack() as stack:
        found["compressed"] = plain.read(2) == GZIP_MAGIC
        plain.seek(0)
        file = stack.enter_context(gzip.GzipFile(fileobj=plain)) if found["compressed"] else plain
        least, most, total = 0, 0, 0
        end = _MOST_UNPACKED if found["compressed"] else found["bytes"]
        at = 0
        try:
            while found["records"] < _MOST_RECORDS and at < end:
                header = file.read(HEADER.size)
                if not header:
                    break
                if len(header) < HEADER.size:
                    raise ValueError(f"it ends within the header of record {found['records']}")
                size = HEADER.unpack(header)[0]
                if not found["compressed"] and at + size + FRAMING > end:
                    raise ValueError(f"record {found['records']} of {size} bytes goes beyond the end of the file")
                at += size + FRAMING
                if found["compressed"] and at > end:
                    return
                if found["records"] == 0 and size <= _MOST_FEATURES:
                    record = file.read(size)
                    found["features"] = _features(record)
                    file.seek(CRC.size, 1)
                else:
                    file.seek(size + CRC.size, 1)
                if file.tell() < at:
                    raise ValueError(f"it ends within record {found['records']}")
                least, most = (min(least, size), max(most, size)) if found["records"] else (size, size)
                total += size
                found["records"] += 1
            found["complete"] = at == end or (bool(found["compressed"]) and not file.read(1))
        finally:
            if found["records"]:
                found["record_bytes"] = {"min": least, "mean": total / found["records"], "max": most}


def _features(record: bytes) -> list[dict[str, Any]] | None:
    """The features of an Example; None where the record is none."""
    try:
        features = wire_features(memoryview(record))
    except ValueError:
        return None
    return [
        {"name": name.decode(errors="replace"), "kind": kind, "bytes": end - start}
        for name, (kind, start, end) in list(features.items())[:MOST]
    ]


def _npy(path: Path, found: dict[str, Any]) -> None:
    with open(path, "rb") as file:
        found |= _array(file, found["bytes"])


def _npz(path: Path, found: dict[str, Any]) -> None:
    found |= {"arrays": [], "complete": False}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members[:MOST]:
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    array = _array(file, member.compress_size)
                found["arrays"].append({"name": member.filename.removesuffix(".npy"), **array})
        found["complete"] = len(members) <= MOST
    if not found["arrays"]:
        found["format"] = "zip"


def _array(file: IO[bytes], stored: int) -> dict[str, Any]:
    """The header of an NPY file, which NumPy evaluates as a literal of limited length."""
    head = io.BytesIO(file.read(_NPY_HEAD))
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head)
    logical = None if dtype.hasobject else int(np.prod(shape, dtype=object)) * dtype.itemsize
    return {"dtype": str(dtype), "shape": list(shape), "stored_bytes": stored, "logical_bytes": logical}


def _netcdf(path: Path, found: dict[str, Any]) -> None:
    layout = read_layout(path)
    variables = list(layout.variables.items()) if layout is not None else []
    found["arrays"] = [
        {
            "name": name, "dtype": one.kind, "shape": list(one.shape), "offset": one.begin, "step": one.step,
            "logical_bytes": one.element * math.prod(one.shape),
        }
        for name, one in variables[:MOST]
    ]  # fmt: skip
    found["complete"] = len(variables) <= MOST


def _parquet(path: Path, found: dict[str, Any]) -> None:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        data, schema = file.metadata, file.schema_arrow
        found |= {"rows": data.num_rows, "row_groups": data.num_row_groups}
        found["columns"] = [{"name": field.name, "type": str(field.type)} for field in list(schema)[:MOST]]
        found["complete"] = len(schema) <= MOST


def _csv(path: Path, found: dict[str, Any]) -> None:
    lines, read, last = 0, 0, b"\n"
    with open(path, "rb") as file:
        first = file.readline(1 << 20)
        file.seek(0)
        while read < _MOST_LINES and (block := file.read(1 << 20)):
            read += len(block)
            lines += block.count(b"\n")
            last = block[-1:]
    lines += last != b"\n"
    text = first.decode(errors="replace")
    found["columns"] = 1 + max(text.strip().count(mark) for mark in _DELIMITERS)
    found |= {"lines": lines, "complete": read == found["bytes"]}


def _image(path: Path, found: dict[str, Any]) -> None:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an image is large matters to who decodes it
        try:
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                found |= {"width": image.width, "height": image.height, "mode": image.mode}
        except (Image.DecompressionBombError, SyntaxError) as error:
            raise ValueError(str(error)) from error


_MAGICS = {
    _HDF5_MAGIC: "hdf5",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PAR1": "parquet",
    **{b"CDF" + bytes([version]): "netcdf" for version in (1, 2, 5)},
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
}
_READERS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "hdf5": _hdf5, "tfrecord": _tfrecord, "npy": _npy, "npz": _npz,
    "netcdf": _netcdf, "parquet": _parquet, "csv": _csv, "png": _image, "jpeg": _image,
}  # fmt: skip


def _line(found: dict[str, Any]) -> str:
    """The file in one line."""
    if found["bytes"] is None:
        return str(found["error"])
    text = f"{found['format'] or 'unknown format'}, {format_size(found['bytes'])}"
    least = "" if found.get("complete", True) else "at least "
    match found["format"]:
        case "hdf5" if "datasets" in found:
            text += f", {least}{len(found['datasets'])} dataset(s)"
        case "tfrecord" if found.get("record_bytes"):
            mean = format_size(round(found["record_bytes"]["mean"]))
            text += f", {least}{found['records']} record(s) of {mean} on average"
        case "npz" | "netcdf" if "arrays" in found:
            text += f", {least}{len(found['arrays'])} array(s)"
        case "npy" if "shape" in found:
            text += f", {found['dtype']} {found['shape']}"
        case "parquet" if "rows" in found:
            text += f", {found['rows']} row(s) in {found['row_groups']} row group(s), {len(found['columns'])} column(s)"
        case "csv" if "lines" in found:
            text += f", {least}{found['lines']} line(s) of {found['columns']} column(s)"
        case "png" | "jpeg" if "width" in found:
            text += f", {found['width']} x {found['height']} {found['mode']}"
    return text + (f"; {found['error']}" if found["error"] else "")
