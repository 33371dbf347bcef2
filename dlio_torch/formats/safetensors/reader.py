"""Reader of safetensors files: the calls of the library that its users write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError, DlioError, PreconditionError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import Stacking, agreed, check_range, put_sample
from dlio_torch.formats.safetensors.options import SAMPLES_OPTION, SafetensorsConfig
from dlio_torch.formats.safetensors.tensor_header import DTYPES, STAND_INS

_ROWS = Stacking(True, SAMPLES_OPTION)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the library into one-line errors that name the file.

    Raises:
        DataError: what was raised inside, or in place of what the library raises for a damaged file.
    """
    from safetensors import SafetensorError

    try:
        yield
    except DlioError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise open_error(path, error) from error
    except SafetensorError as error:
        raise open_error(path, ValueError(str(error))) from error


class RowsReader(Reader):
    """Reader of a file with many samples, each a row of every array.

    Args:
        path: the file.
        specs: arrays of a sample.
        options: how the library reads.

    Raises:
        DataError: missing, damaged, or its arrays are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: Sequence[ArraySpec], options: SafetensorsConfig) -> None:
        self._path = path
        self._specs = specs
        self._options = options
        self._file: Any = None
        self._slices: dict[str, Any] = {}
        self._open()

    def _open(self) -> None:
        from safetensors import safe_open

        with reading(self._path):
            self._file = safe_open(self._path, framework=self._options.framework, **backend(self._options))
            names = set(self._file.keys())
            counts = {}
            for spec in self._specs:
                require(spec.name, names, self._path)
                self._slices[spec.name] = self._file.get_slice(spec.name)
                counts[spec.name] = self._rows(spec)
            self.num_samples = agreed(counts, self._path)

    def _rows(self, spec: ArraySpec) -> int:
        """Rows of an array of the right type and shape."""
        part = self._slices[spec.name]
        stored, shape = str(part.get_dtype()), tuple(part.get_shape())
        dtype = DTYPES.get(stored, STAND_INS.get(stored))
        if dtype is None or (stored in STAND_INS and self._options.framework == "np"):
            raise DataError(
                f"{self._path}: array {spec.name} holds {stored}, which NumPy lacks",
                hint="set dataset.safetensors.framework=pt" if dtype is not None else "remove it from dataset.fields",
            )
        return _ROWS.count(spec, dtype, shape, self._path)

    def describe(self) -> dict[str, Any]:
        """Element type and shape of each array."""
        return {
            name: {"dtype": str(part.get_dtype()), "shape": list(part.get_shape())}
            for name, part in self._slices.items()
        }

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        if self._options.reopen == "file" and self._file is None:
            self._open()
        with reading(self._path):
            for spec in self._specs:
                part = self._slices[spec.name]
                rows = part[first : first + count]  # versions before 0.5 take no single index
                buffer.fixed[spec.name][position : position + count] = as_numpy(rows, spec.dtype)
        if self._options.reopen == "file":
            self.close()

    def close(self) -> None:
        self._slices.clear()
        if self._file is not None:
            self._file.__exit__(None, None, None)
        self._file = None


class LoadedReader(Reader):
    """Reader of a file that is one sample; each use loads it, as by ``load_file(path)``.

    Args:
        path: the file.
        specs: arrays of a sample.
        options: how the library reads.
    """

    num_samples = 1

    def __init__(self, path: Path, specs: Sequence[ArraySpec], options: SafetensorsConfig) -> None:
        self._path = path
        self._specs = specs
        self._options = options

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, 1, first, count)
        arrays = self._load()
        for spec in self._specs:
            require(spec.name, arrays, self._path)
            put_sample(spec, as_numpy(arrays[spec.name], spec.dtype), buffer, position, self._path, SAMPLES_OPTION)

    def _load(self) -> dict[str, Any]:
        with reading(self._path):
            if self._options.framework == "pt":
                from safetensors.torch import load_file

                return load_file(self._path, **backend(self._options))
            from safetensors.numpy import load_file as load_numpy

            return load_numpy(self._path, **backend(self._options))

    def close(self) -> None:
        """Does nothing: the file is open only while it is loaded."""


def backend(options: SafetensorsConfig) -> dict[str, Any]:
    """Keyword of the library's calls; none for the way that all of its versions have."""
    return {} if options.backend == "mmap" else {"backend": options.backend}


def check_backend(options: SafetensorsConfig) -> None:
    """Check that the installed library has the backend.

    Raises:
        PreconditionError: it is too old.
    """
    import safetensors

    version = tuple(int(part) for part in safetensors.__version__.split(".")[:2])
    if options.backend != "mmap" and version < (0, 8):
        raise PreconditionError(
            f"dataset.safetensors.backend={options.backend} needs safetensors 0.8 or newer, but "
            f"{safetensors.__version__} is installed",
            hint="pip install -U safetensors, or set dataset.safetensors.backend=mmap",
        )


def require(name: str, names: Collection[str], path: Path) -> None:
    """Raise unless a file has an array of this name.

    Raises:
        DataError: it has not; names some that it has.
    """
    if name not in names:
        raise DataError(
            f"{path} has no array {name!r} (it has {', '.join(sorted(names)[:8]) or 'none'})",
            hint="correct the names in dataset.fields, or replace the file",
        )


def as_numpy(array: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The elements of what the library returned, as NumPy has them; a type that NumPy lacks becomes ``dtype``."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    import torch

    lacking = array.is_floating_point() and array.dtype not in (torch.float16, torch.float32, torch.float64)
    if lacking and array.element_size() == dtype.itemsize:
        same_size = {1: torch.uint8, 2: torch.int16}[array.element_size()]
        return np.asarray(array.view(same_size).numpy()).view(dtype)
    return np.asarray(array.numpy())
