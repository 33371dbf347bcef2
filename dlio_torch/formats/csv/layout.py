"""Layout of CSV files, which pyarrow parses whole outside of the interpreter lock.

pandas, by which the faithful path reads, decides in every doubt: a file that pyarrow does not take as numbers of the
expected types goes through it, and either comes out all the same or is refused in its words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.csv.options import CsvConfig
from dlio_torch.formats.csv.parsed_rows import Table


def pyarrow_csv() -> Any:
    """Imports the module ``pyarrow.csv``.

    Raises:
        MissingPackageError: it is not installed.
    """
    need = "loader.engine=decoupled parses CSV files with pyarrow"
    return import_library("pyarrow.csv", need, "parquet", otherwise="set loader.engine=dataloader")


def parsed(content: bytes, specs: Sequence[ArraySpec], options: CsvConfig) -> Table | None:
    """The arrays of all rows, with rows along the first axis; ``None`` if pyarrow cannot parse the file.

    Args:
        content: of the file.
        specs: arrays of a row, none of variable length.
        options: header and delimiter.

    Raises:
        MissingPackageError: pyarrow is not installed.
    """
    csv = pyarrow_csv()
    import pyarrow

    columns = [math.prod(spec.shape) for spec in specs]
    kinds = [pyarrow.float64() if spec.dtype.kind == "f" else pyarrow.int64() for spec in specs]
    types = [kind for kind, count in zip(kinds, columns, strict=True) for _ in range(count)]
    names = [str(number) for number in range(len(types))]
    line = content.find(b"\n") + 1 or len(content)
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(content),
            # A block holds at least one row.
            read_options=csv.ReadOptions(
                use_threads=False,
                column_names=names,
                block_size=max(1 << 20, 4 * line),
                skip_rows=int(options.header),
            ),
            parse_options=csv.ParseOptions(quote_char=False, newlines_in_values=False, delimiter=options.delimiter),
            convert_options=csv.ConvertOptions(
                column_types=dict(zip(names, types, strict=True)), null_values=[], strings_can_be_null=False
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    arrays: Table = {}
    low = 0
    for spec, count in zip(specs, columns, strict=True):
        wide = np.empty((table.num_rows, count), np.float64 if spec.dtype.kind == "f" else np.int64)
        for number in range(count):
            wide[:, number] = table.column(low + number).to_numpy()
        low += count
        with np.errstate(over="ignore", invalid="ignore"):
            array = wide.astype(spec.dtype)
        if _in_doubt(wide, array):
            return None
        arrays[spec.name] = array.reshape(table.num_rows, *spec.shape)
    return arrays if table.num_rows else None


def _in_doubt(wide: npt.NDArray[Any], array: npt.NDArray[np.generic]) -> bool:
    """Whether pandas would read the numbers differently for the type of ``array``, or reject them."""
    if array.dtype.kind != "f":
        return bool((array != wide).any())
    # pandas turns large integers into small floating-point numbers in one step.
    limit = 2.0**53 if array.dtype.itemsize < 8 else np.inf
    return not bool((np.abs(wide) <= limit).all())
