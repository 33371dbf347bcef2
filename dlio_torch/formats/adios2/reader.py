"""Reader of BP folders: reads each array by one selection per step."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.adios2.folder import check_complete
from dlio_torch.formats.adios2.index import check_index
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, read_pieces
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import agreed, check_range

if TYPE_CHECKING:
    import adios2.bindings as adios

TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
}
"""NumPy's name of an element type -> that of ADIOS2."""

_OTHER_NAMES = {"int8_t": "char"}  # what the library's own bindings write for NumPy's int8
_STAND_INS: dict[str, np.dtype[Any]] = {"bool": np.dtype(np.uint8), "float16": np.dtype(np.uint16)}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError, MemoryError)


def stored_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The ADIOS2-compatible element type of the same size that elements are stored as."""
    return _STAND_INS.get(dtype.name, dtype)


class _Steps:
    """Variable of an open folder, read by rows of one step."""

    def __init__(self, engine: adios.Engine, variable: adios.Variable, dtype: np.dtype[Any]) -> None:
        self._engine = engine
        self._variable = variable
        self._dtype = dtype
        shapes = [variable.Shape(step) for step in range(variable.Steps())]
        self.rows = [shape[0] if shape else -1 for shape in shapes]
        self.row_shapes = {tuple(shape[1:]) for shape in shapes}

    def ask(self, step: int, first: int, out: npt.NDArray[Any]) -> None:
        """Queue a read of ``len(out)`` rows of a step from ``first`` on into ``out`` for the next ``PerformGets``."""
        self._variable.SetStepSelection([step, 1])
        self._variable.SetSelection([[first, *(0 for _ in out.shape[1:])], list(out.shape)])
        self._engine.Get(self._variable, out.view(stored_type(self._dtype)), _mode("Deferred"))

    def read(self, step: int, first: int, count: int, row_shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Read rows of one step into a new array."""
        if first < 0 or count < 0 or first + count > self.rows[step]:
            raise ValueError(
                f"step {step} has {self.rows[step]} rows, but rows {first} to {first + count - 1} were requested"
            )
        out = np.empty((count, *row_shape), self._dtype)
        self.ask(step, first, out)
        self._engine.PerformGets()
        return out


class Adios2Reader(Reader):
    """Reader of the samples of one BP folder.

    Args:
        path: the folder.
        specs: arrays of a sample.

    Raises:
        DataError: missing, incomplete, no BP4 or BP5, or its variables are not what ``specs`` say.
    """

    num_samples: int

    def __init__(self, path: Path, specs: Sequence[ArraySpec]) -> None:
        import adios2.bindings as adios

        check_complete(path)
        tables = (spec.name + EXTENTS_SUFFIX for spec in specs if spec.variable)
        check_index(path, [*(spec.name for spec in specs), *tables])
        self._path = path
        self._specs = specs
        with reading(path):
            self._adios = adios.ADIOS()
            self._io = self._adios.DeclareIO("read")
            self._engine = self._io.Open(str(path), _mode("ReadRandomAccess"))
        try:
            with reading(path):
                self._arrays = {spec.name: self._find(spec.name, spec.dtype, spec.shape) for spec in specs}
                self._extents = {
                    spec.name: self._find(spec.name + EXTENTS_SUFFIX, np.dtype(np.int64), (2,))
                    for spec in specs
                    if spec.variable
                }
            # Where each step's samples begin, and the end of the last one's.
            samples = {name: self._extents.get(name, array).rows for name, array in self._arrays.items()}
            self.num_samples = agreed({name: sum(rows) for name, rows in samples.items()}, path)
            if len({tuple(rows) for rows in samples.values()}) > 1:
                raise DataError(
                    f"{path}: the arrays of dataset.fields differ in the number of samples per step",
                    hint="correct dataset.fields",
                )
            self._ends = np.cumsum([0, *next(iter(samples.values()))])
        except BaseException:
            self.close()
            raise

    def _find(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> _Steps:
        variable = self._io.InquireVariable(name)
        there: Mapping[str, Any] = self._io.AvailableVariables()
        if name not in there or variable is None:
            names = ", ".join(list(there)[:8]) or "none"
            raise DataError(
                f"{self._path} has no variable {name!r}; its variables are {names}", hint="correct dataset.fields"
            )
        wanted = TYPES[stored_type(dtype).name]
        if variable.Type() not in (wanted, _OTHER_NAMES.get(wanted)):
            raise DataError(
                f"{self._path}: variable {name} holds {variable.Type()}, but dataset.fields expect {wanted}",
                hint="correct dataset.fields",
            )
        steps = _Steps(self._engine, variable, dtype)
        if steps.row_shapes != {row_shape} or -1 in steps.rows:
            shape = ", ".join(["n", *map(str, row_shape)])
            raise DataError(
                f"{self._path}: variable {name} has shape {variable.Shape(0)}, but dataset.fields expect [{shape}]",
                hint="correct dataset.fields",
            )
        return steps

    def describe(self) -> dict[str, Any]:
        """Engine that wrote the folder, number of steps, and samples of the first step."""
        steps = len(self._ends) - 1
        first = int(self._ends[1]) if steps else 0
        return {"engine": self._engine.Type(), "steps": steps, "samples_of_first_step": first}

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        with reading(self._path):
            for spec in self._specs:
                array = self._arrays[spec.name]
                for step, row, length, place in self._parts(first, count):
                    if spec.variable:
                        self._read_variable(spec, step, row, length, buffer, position + place)
                    else:
                        array.ask(step, row, buffer.fixed[spec.name][position + place : position + place + length])
                if not spec.variable:
                    self._engine.PerformGets()

    def _parts(self, first: int, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Splits a run of samples by steps: step, first sample in the step, number of samples, position in the run."""
        number, end = first, first + count
        while number < end:
            step = int(np.searchsorted(self._ends, number, "right")) - 1
            stop = min(end, int(self._ends[step + 1]))
            yield step, number - int(self._ends[step]), stop - number, number - first
            number = stop

    def _read_variable(
        self, spec: ArraySpec, step: int, row: int, count: int, buffer: BatchBuffer, position: int
    ) -> None:
        extents = self._extents[spec.name].read(step, row, count, (2,))
        read_pieces(
            lambda begin, rows: self._arrays[spec.name].read(step, begin, rows, spec.shape),
            extents[:, 0].tolist(),
            extents[:, 1].tolist(),
            buffer,
            position,
            name=spec.name,
            first=int(self._ends[step]) + row,
            path=self._path,
        )

    def close(self) -> None:
        # The engine of a damaged folder may refuse to be closed, too; what was wrong with it has been told.
        with contextlib.suppress(*_DAMAGE):
            self._engine.Close()


def _mode(name: str) -> Any:
    import adios2.bindings as adios

    return getattr(adios.Mode, name)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the long, coloured errors of ADIOS2 into one-line errors that name the folder.

    Raises:
        DataError: what was raised inside, or in place of what ADIOS2 raises.
    """
    try:
        yield
    except DlioError:
        raise
    except _DAMAGE as error:
        text = _COLOURS.sub("", str(error)).split("[ADIOS2 EXCEPTION]")[-1].strip()
        raise open_error(path, RuntimeError(text[:300])) from error
