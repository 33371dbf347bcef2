"""Reader of Zarr stores: the calls of zarr-python that its users write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, read_pieces
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import agreed, check_range
from dlio_torch.formats.zarr.options import ZarrConfig
from dlio_torch.formats.zarr.zarr_library import check_array, member, open_array, open_group, reading

if TYPE_CHECKING:
    import zarr

EXTENT = np.dtype(np.int64)
"""Element type of the table of a variable-length array: first row and number of rows of each sample."""


class ZarrReader(Reader):
    """Reader of the samples of one store.

    Args:
        path: the store.
        specs: arrays of a sample.
        options: how the library reads.

    Raises:
        DataError: here or from :meth:`read`: missing, damaged, or its arrays are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: Sequence[ArraySpec], options: ZarrConfig) -> None:
        self._path = path
        self._specs = specs
        self._options = options
        self._kept: dict[str, zarr.Array[Any]] = {}
        self._group: zarr.Group | None = None
        with reading(path):
            self._open()
            if options.reopen == "none":
                counts = {spec.name: self._table_or_array(spec).shape[0] for spec in specs}
                self.num_samples = agreed(counts, path)
                for spec in specs:
                    self.array(spec)
            else:  # only the first array tells, as in len(group["a"])
                self.num_samples = self._table_or_array(specs[0]).shape[0]

    def _open(self) -> None:
        """Open the store."""
        if self._options.root == "group":
            self._group = open_group(self._path, self._options)

    def _table_or_array(self, spec: ArraySpec) -> zarr.Array[Any]:
        """The array with one row for each sample."""
        return self._table(spec) if spec.variable else self.array(spec)

    def array(self, spec: ArraySpec) -> zarr.Array[Any]:
        """The open array of a field."""
        return self._find(spec.name, spec.dtype, spec.shape)

    def _table(self, spec: ArraySpec) -> zarr.Array[Any]:
        return self._find(spec.name + EXTENTS_SUFFIX, EXTENT, (2,))

    def _find(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> zarr.Array[Any]:
        array = self._kept.get(name)
        if array is None:
            if self._group is None:
                array = open_array(self._path, self._options)
            else:
                array = member(self._group, name, self._path)
            check_array(array, name, self._path, dtype, row_shape)
            if self._options.reopen == "none":
                self._kept[name] = array
        return array

    def extents(self, spec: ArraySpec) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First row and number of rows of all samples of a variable-length field."""
        table = np.asarray(self._table(spec)[:]).astype(np.int64, copy=False)
        return table[:, 0], table[:, 1]

    def describe(self) -> dict[str, Any]:
        """Chunks, shards and codecs of each array."""
        details: dict[str, Any] = {}
        with reading(self._path):
            for spec in self._specs:
                array = self.array(spec)
                details[spec.name] = {"chunks": list(array.chunks), "shards": array.shards and list(array.shards)}
                details[spec.name]["compression"] = codec_names(array)
        return details

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        with reading(self._path):
            if self._options.reopen == "file":
                self._open()
            for spec in self._specs:
                if spec.variable:
                    self._read_variable(spec, first, count, buffer, position)
                else:
                    into = buffer.fixed[spec.name][position : position + count]
                    into[...] = self._rows(self.array(spec), spec.name, first, count)

    def _read_variable(self, spec: ArraySpec, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Read the extents of all samples in one call and then their rows in one call."""
        extents = self._rows(self._table(spec), spec.name + EXTENTS_SUFFIX, first, count).reshape(-1, 2)
        array = self.array(spec)

        def rows(begin: int, number: int) -> npt.NDArray[Any]:
            if begin < 0 or number < 0 or begin + number > array.shape[0]:
                raise DataError(
                    f"{self._path}: array {spec.name} has {array.shape[0]} rows, but rows {begin} to "
                    f"{begin + number - 1} were requested",
                    hint="the store contradicts its own table of extents; generate or fetch the store again",
                )
            return np.asarray(array[begin : begin + number]).astype(spec.dtype, copy=False)

        read_pieces(
            rows, extents[:, 0].tolist(), extents[:, 1].tolist(), buffer, position,
            name=spec.name, first=first, path=self._path,
        )  # fmt: skip

    def _rows(self, array: zarr.Array[Any], name: str, first: int, count: int) -> npt.NDArray[Any]:
        """Reads consecutive rows: one as by ``a[i]``, several as by ``a[i:j]``."""
        if first + count > array.shape[0]:
            raise DataError(
                f"{self._path}: array {name} has {array.shape[0]} rows, but rows {first} to {first + count - 1} were "
                "requested",
                hint="name arrays with equal numbers of samples in dataset.fields",
            )
        return np.asarray(array[first] if count == 1 else array[first : first + count])

    def close(self) -> None:
        """Forget the arrays; zarr-python keeps no file open."""
        self._kept.clear()
        self._group = None


def codec_names(array: zarr.Array[Any]) -> list[str]:
    """Names of the codecs that compress the chunks of an array, in the order of writing."""
    return [_name(codec) for codec in array.compressors]


def _name(codec: Any) -> str:
    """Name of a codec of zarr-python (version 3) or numcodecs (version 2)."""
    known = getattr(codec, "codec_id", None)
    return str(known if known is not None else codec.to_dict()["name"])
