"""Description of a BP folder of unknown origin, from its metadata."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlio_torch.formats.adios2.folder import check_complete
from dlio_torch.formats.adios2.format import need_adios2
from dlio_torch.formats.adios2.reader import TYPES, reading
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.row_arrays import RowArray, described_by_rows

_NAMES = {stored: name for name, stored in TYPES.items()} | {"char": "int8"}


def describe(path: Path) -> DataDescription:
    """Describes a folder: its samples are the rows of all steps, one step after another.

    Args:
        path: a folder of BP4 or BP5.

    Raises:
        DataError: it is none, incomplete or damaged.
        MissingPackageError: adios2 is not installed.
    """
    need_adios2()
    check_complete(path)
    import adios2.bindings as adios

    with reading(path):
        library = adios.ADIOS()
        source = library.DeclareIO("describe")
        engine = source.Open(str(path), adios.Mode.ReadRandomAccess)
        try:
            known = source.AvailableVariables()
            arrays = [_array(name, about, source.InquireVariable(name)) for name, about in sorted(known.items())]
            details = {"engine": engine.Type(), "steps": int(engine.Steps())}
        finally:
            with suppress(RuntimeError):
                engine.Close()
    return described_by_rows(arrays, notes=_steps(details["steps"]), details=details)


def _steps(count: int) -> list[str]:
    """A note on what a step is, where there are several."""
    return [f"{count} steps: the rows of a step follow those of the step before"] if count > 1 else []


def _array(name: str, about: dict[str, Any], variable: Any) -> RowArray:
    """A variable as one array of the rows of all its steps."""
    kind = _NAMES.get(about["Type"], "")
    if about.get("SingleValue") == "true" or not about.get("Shape"):
        return RowArray(StoredArray(name, kind or about["Type"], (), note="one value a step, not an array of samples"))
    if not kind or variable is None:
        return RowArray(StoredArray(name, about["Type"], note=f"type {about['Type']} cannot be read into tensors"))
    shapes = [tuple(variable.Shape(step)) for step in range(variable.Steps())]
    rows = sum(shape[0] for shape in shapes)
    if len({shape[1:] for shape in shapes}) > 1:
        return RowArray(StoredArray(name, kind, note="its shape differs from step to step behind the first axis"))
    shape = (rows, *shapes[0][1:])
    note = "" if math.prod(shape) else "it is empty"
    return RowArray(StoredArray(name, kind, shape, note=note))
