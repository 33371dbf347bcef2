"""Converts DLIO's sections ``dataset`` and ``storage`` to ``dataset``."""

from __future__ import annotations

import math
import posixpath
from typing import Any

from dlio_torch.interop.dlio.recipe import Recipe
from dlio_torch.interop.dlio.workload import WorkloadFile, plain_path
from dlio_torch.interop.dlio.workload_values import Value

FORMATS = (
    "tfrecord",
    "hdf5",
    "hdf5_opt",
    "csv",
    "npz",
    "npy",
    "jpeg",
    "png",
    "indexed_binary",
    "mmap_indexed_binary",
    "synthetic",
    "parquet",
)
_LOCAL = ("local_fs", "parallel_fs")
_IMAGES = ("jpeg", "png")
_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")


def dataset(work: WorkloadFile, recipe: Recipe) -> str:
    """Converts the sections; returns DLIO's name of the format."""
    form = work.choice("dataset.format", choices=FORMATS, default="tfrecord")
    if work.text("reader.data_loader").value.removeprefix("dlio_") == "synthetic":
        form = Value("synthetic", "reader.data_loader: synthetic creates samples in memory")
        work.note("dataset.format", "reader.data_loader=synthetic creates samples in memory and reads no file")
    ours = {"hdf5_opt": "hdf5", "mmap_indexed_binary": "indexed_binary"}.get(form.value, form.value)
    recipe.set("dataset.format", ours, f"{form.origin}: {form.value}" if ours != form.value else form.origin)
    _root(work, recipe)
    _amounts(work, recipe, ours)
    _fields(work, recipe, ours)
    _options(work, recipe, ours, form)
    keep = work.flag("dataset.keep_files", default=True)
    if not keep.value:
        work.note(keep.origin, "data remain until the verb `clean` removes them")
    return form.value


def _root(work: WorkloadFile, recipe: Recipe) -> None:
    kind = work.text("storage.storage_type", default="local_fs")
    root = work.text("storage.storage_root", default="./")
    folder = work.text("dataset.data_folder", default="./data/")
    base = plain_path(root.value) if kind.value in _LOCAL or "://" in root.value else None
    path = plain_path(folder.value)
    if kind.value not in _LOCAL:
        work.note(
            kind.origin, (f"{kind.value} storage is read through a file system here: mount it, and set dataset.root")
        )
    if base is None or path is None:
        why = "object storage: mount it, and set dataset.root to its folder, or dataset.path to existing data"
        if base is None:
            work.note(root.origin, why)
        if path is None:
            work.note(folder.origin, why)
        if path is None or kind.value not in _LOCAL:
            return
    if folder.given and path is not None:
        recipe.set("dataset.root", posixpath.normpath(posixpath.join(base or "", path)), folder.origin)


def _amounts(work: WorkloadFile, recipe: Recipe, form: str) -> None:
    recipe.set("dataset.num_files", work.integer("dataset.num_files_train", default=8, minimum=1))
    per_file = work.integer("dataset.num_samples_per_file", default=1, minimum=1)
    if form in _IMAGES and per_file.value > 1:
        work.note(per_file.origin, f"a {form} file is one image, so each file has one sample")
        per_file = Value(1, f"a {form} file is one image")
    recipe.set("dataset.samples_per_file", per_file)
    files = work.integer("dataset.num_files_eval")
    if files.value:
        recipe.set("dataset.num_files_eval", files)
        recipe.set("dataset.samples_per_file_eval", per_file)
    folders, others = work.integer("dataset.num_subfolders_train"), work.integer("dataset.num_subfolders_eval")
    if folders.given:
        recipe.set("dataset.num_subfolders", folders)
    if others.given and others.value != folders.value:
        work.note(others.origin, f"evaluation files lie in as many subfolders as the training files, {folders.value}")


def _fields(work: WorkloadFile, recipe: Recipe, form: str) -> None:
    columns = _columns(work) if form == "parquet" else []
    if columns:
        work.note("dataset.record_length_bytes", "dataset.parquet.columns defines a record")
        work.note("dataset.record_length", "dataset.parquet.columns defines a record")
        recipe.set("dataset.fields", columns, "dataset.parquet.columns")
        return
    dims = work.integers("dataset.record_dims")
    length = work.number("dataset.record_length_bytes", "dataset.record_length", default=65536, minimum=1)
    stdev = work.number("dataset.record_length_bytes_stdev", "dataset.record_length_stdev")
    kind = work.choice("dataset.record_element_type", choices=_TYPES, default="uint8")
    if dims.value:
        if length.given:
            work.note(length.origin, "dataset.record_dims defines a record")
        if min(dims.value) < 1:
            raise work.wrong(dims.origin, dims.value, "every length must be at least 1", "write [256, 256]")
    if form in _IMAGES:
        _image(recipe, dims, length, stdev)
        return
    if dims.value:
        recipe.set("dataset.fields", [{"name": "data", "dtype": kind.value, "shape": dims.value}], dims.origin)
        return
    if kind.value != "uint8":
        # Without dimensions DLIO makes bytes: the type counts with record_dims alone.
        work.note(kind.origin, "DLIO writes bytes if dataset.record_dims is not given")
    size = max(1, round(length.value))
    if stdev.value and form in ("csv", "synthetic"):
        work.note(stdev.origin, f"samples of format {form} have equal lengths")
        stdev = Value(0.0, stdev.origin)
    if stdev.value:
        field: dict[str, Any] = {"name": "data", "dtype": "uint8", "shape": []}
        field |= {"length_mean": size, "length_stdev": stdev.value, "origin": f"{length.origin}, {stdev.origin}"}
    else:
        field = {"name": "data", "dtype": "uint8", "shape": [size], "origin": length.origin}
    recipe.set(
        "dataset.fields",
        [field],
        ("the recipe writes one array of bytes; DLIO's array is a square with the root of the length as its edge"),
    )
    edge = math.isqrt(size)
    if not stdev.value and edge * edge != size:
        recipe.differs(f"DLIO writes records of {edge} x {edge} = {edge * edge} bytes for {length.origin}={size}")


def _image(recipe: Recipe, dims: Value[list[int]], length: Value[float], stdev: Value[float]) -> None:
    """Converts the size of an image to a JPEG or PNG file of the published size.

    DLIO's images are grey and of noise, with a pixel for each byte; those that are read as photographs are have three
    channels, and a JPEG of quality 90 takes from 0.05 to 0.9 bytes for a pixel.
    """
    edge = max(1, math.isqrt(round(2 * length.value)))
    height, width = (*dims.value, *dims.value)[:2] if dims.value else (edge, edge)
    origin = dims.origin if dims.value else length.origin
    recipe.set(
        "dataset.fields",
        [{"name": "image", "dtype": "uint8", "shape": [height, width, 3], "origin": origin}],
        "DLIO's images are grey" if dims.value else "two pixels per byte of a file, as in photographs",
    )
    if not dims.value:
        recipe.set("dataset.image.file_bytes", round(length.value), length.origin)
        if stdev.value:
            recipe.set("dataset.image.file_bytes_stdev", stdev)


def _columns(work: WorkloadFile) -> list[dict[str, Any]]:
    """Converts the columns of a table that are read; the other columns are left out."""
    read, unread = [], 0
    for i, column in enumerate(work.items("dataset.parquet.columns")):
        key = f"dataset.parquet.columns.{i}"
        size = column.get("size") or "1"
        if not (isinstance(size, str) and size.isascii() and size.isdecimal() and 1 <= int(size[:18]) == int(size)):
            raise work.wrong(key, size, "expected a whole number of elements", "write size: 128")
        name, kind, flag = column.get("name"), column.get("dtype") or "float32", column.get("read")
        if not isinstance(name, str) or kind not in _TYPES:
            raise work.wrong(
                key, kind, "expected a name and an element type", (f"write one of the types {', '.join(_TYPES)}")
            )
        strange = sorted(set(column) - {"name", "dtype", "size", "read"})
        if strange:
            raise work.wrong(key, strange, "a column has an unknown key", "use the keys name, dtype, size, read")
        if str(flag).lower() in ("false", "no", "off", "0"):
            unread += 1
            continue
        shape = [int(size)] if int(size) > 1 else []
        read.append({"name": name, "dtype": kind, "shape": shape, "origin": f"{key}, size {size}"})
    if unread:
        if not read:
            raise work.wrong(
                "dataset.parquet.columns",
                "read: false",
                "no column is read",
                ("write read: true for at least one column"),
            )
        work.note(
            "dataset.parquet.columns",
            f"{len(read)} columns are written; the {unread} columns with read: false are not, so files are smaller "
            "and the columns that are read lie next to each other",
        )
    return read


def _options(work: WorkloadFile, recipe: Recipe, form: str, named: Value[str]) -> None:
    _compression(work, recipe, form)
    if form == "hdf5":
        _chunks(work, recipe)
    else:
        for key in ("dataset.enable_chunking", "dataset.chunk_size", "dataset.hdf5"):
            work.dismiss(key, f"DLIO uses this key for hdf5 only, not for {form}")
    if form == "indexed_binary":
        mapped = named.value == "mmap_indexed_binary"
        recipe.set("dataset.binary.access", "mmap" if mapped else "file", f"{named.origin}: {named.value}")
        recipe.differs(
            "DLIO keeps offsets and sizes in two index files; here one .idx file in Megatron-LM's layout contains both"
        )
    if form == "npz" and recipe.get("dataset.samples_per_file", 1) > 1:
        if "length_mean" in recipe.get("dataset.fields")[0]:
            recipe.differs("DLIO's samples in one file have equal lengths and are stacked along the last axis")
        else:
            recipe.set("dataset.npz.sample_axis", "last", "DLIO stacks samples along the last axis")
    if form == "parquet":
        rows = work.integer("dataset.parquet.row_group_size", default=1024, minimum=1)
        if rows.given:
            recipe.set("dataset.parquet.row_group_samples", rows)
    else:
        work.dismiss("dataset.parquet", f"this key applies to parquet, not to {form}")
    if form == "csv":
        recipe.set("dataset.csv.value_chars", 3, "bytes as decimal numbers")
    size = work.integer("reader.transfer_size", default=262144)
    if form == "tfrecord" and size.given and size.value:
        recipe.set("dataset.tfrecord.transfer_size", size)
    elif size.given:
        work.note(size.origin, f"DLIO uses this key for tfrecord only, not for {form}")


def _compression(work: WorkloadFile, recipe: Recipe, form: str) -> None:
    codec = work.text("dataset.compression", default="none")
    level = work.integer("dataset.compression_level", default=4)
    word = codec.value.strip().lower()
    if word in ("none", ""):
        if level.given:
            work.note(level.origin, "no file is compressed")
        if form == "parquet":
            recipe.set("dataset.parquet.compression", "none", codec.origin)
        return
    levels = {"hdf5": "dataset.hdf5.compression_level", "tfrecord": "dataset.tfrecord.compression_level"}
    key = {
        ("hdf5", "gzip"): "dataset.hdf5.compression",
        ("hdf5", "lzf"): "dataset.hdf5.compression",
        ("tfrecord", "gzip"): "dataset.tfrecord.compression",
        ("parquet", "snappy"): "dataset.parquet.compression",
        ("parquet", "gzip"): "dataset.parquet.compression",
        ("parquet", "zstd"): "dataset.parquet.compression",
        ("npz", "zip"): "dataset.npz.compressed",
    }.get((form, word))
    if key is None:
        work.note(codec.origin, f"format {form} has no codec {word}; files are not compressed")
        if form == "parquet":
            recipe.set("dataset.parquet.compression", "none", f"{codec.origin}: {word} is not available")
    else:
        recipe.set(key, True if form == "npz" else word, codec.origin)
    if word == "gzip" and form in levels and key is not None:
        recipe.set(levels[form], min(level.value, 9), level.origin)
    elif level.given:
        work.note(level.origin, f"codec {word} of format {form} has no level here")


def _chunks(work: WorkloadFile, recipe: Recipe) -> None:
    wanted = work.flag("dataset.enable_chunking")
    size = work.integer("dataset.chunk_size")
    dims = work.integers("dataset.hdf5.chunk_dims")
    arrays = work.integer("dataset.hdf5.num_dset_per_record", default=1, minimum=1)
    fields = recipe.get("dataset.fields")
    if arrays.value > 1:
        shape = fields[0]["shape"]
        if not shape or shape[0] % arrays.value:
            raise work.wrong(
                arrays.origin,
                arrays.value,
                ("must divide the first length in dataset.record_dims"),
                ("write a divisor of the first length"),
            )
        part = {"dtype": fields[0]["dtype"], "shape": [shape[0] // arrays.value, *shape[1:]]}
        fields = [{"name": f"data_{i}", **part, "origin": arrays.origin} for i in range(arrays.value)]
        recipe.set("dataset.fields", fields, arrays.origin)
    if dims.value:
        if len(dims.value) == len(fields[0]["shape"]) and min(dims.value) > 0:
            for field in fields:
                field["chunk"] = [1, *dims.value]
        else:
            work.note(dims.origin, "a chunk needs as many lengths as dataset.record_dims, each at least 1")
    if wanted.value and size.value:
        recipe.set("dataset.hdf5.chunk_bytes", size, f"{wanted.origin}, {size.origin}")
    elif size.given:
        work.note(size.origin, "this key has an effect with enable_chunking: True only")
    if recipe.get("dataset.hdf5.compression") and not (wanted.value and size.value) and "chunk" not in fields[0]:
        # h5py picks chunks itself where an array is compressed; a chunk of a sample is what it comes to.
        recipe.set("dataset.hdf5.chunk_bytes", 65536, "compressed arrays need chunks; h5py chooses the chunks in DLIO")
