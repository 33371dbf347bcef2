"""Format ``arrow``: Arrow IPC files, in which Hugging Face's ``Dataset.save_to_disk`` stores data sets.

A scalar is a plain column, an array a list of one length, a variable-length array a list of its elements (flattened:
the rows' shape is the reader's to know).  Variable-length arrays of uint8 are binary columns, as images and text are
stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.arrow.layout import array_layout
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.arrow.reader import ArrowReader
from dlio_torch.formats.arrow.saved_folder import data_files, look_at_descriptions
from dlio_torch.formats.arrow.table import check_container
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.table_errors import table_errors
from dlio_torch.formats.core.table_format import TableFormat
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ELEMENTS = (1 << 31) - 1  # what 32-bit offsets address in one batch


class ArrowFormat(TableFormat):
    """Arrays of ``dataset.fields`` as columns of Arrow IPC files."""

    name: ClassVar[str] = "arrow"
    suffix: ClassVar[str] = ".arrow"
    library: ClassVar[str] = "pyarrow.ipc"
    reading: ClassVar[tuple[str, ...]] = ("memory_map",)

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ArrowConfig = config.of(ArrowConfig)
        super().__init__(config, seed)
        self._compressibility = self.options.compressibility

    def look_at_shapes(self, path: Path) -> None:
        """Reads the descriptions of a saved data set; a file of another folder is opened."""
        if not look_at_descriptions(path.parent):
            super().look_at_shapes(path)

    def stored_bytes(self) -> float:
        """Mean bytes of a sample in a file, from a trial file in memory."""
        import pyarrow as pa

        samples = self.config.samples_per_file
        count = self.trial_rows(min(samples, self.options.batch_rows))
        sizes = []
        for rows in (0, count):
            file = pa.BufferOutputStream()
            with self._writer(file) as writer:
                if rows:
                    writer.write_batch(self._batch(0, rows, None))
            sizes.append(file.getvalue().size)
        return float((sizes[1] - sizes[0]) / count + sizes[0] / samples)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        size = self.options.batch_rows
        with self._writer(str(path)) as writer:
            for low in range(first_sample, first_sample + num_samples, size):
                writer.write_batch(self._batch(low, min(size, first_sample + num_samples - low), pool))

    def _writer(self, target: Any) -> Any:
        import pyarrow as pa

        options = self.options
        codec = None if options.compression == "none" else options.compression
        opener = pa.ipc.new_file if options.ipc == "file" else pa.ipc.new_stream
        return opener(target, self._schema(), options=pa.ipc.IpcWriteOptions(compression=codec))

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(spec.name, self.column_type(spec)) for spec in self._specs])

    def _batch(self, first: int, count: int, pool: Executor | None) -> pa.RecordBatch:
        """Record batch of the columns of consecutive samples."""
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(self.columns(first, count, pool), schema=self._schema())

    def check_elements(self, name: str, count: int) -> None:
        if count > _MOST_ELEMENTS:
            raise ConfigError(
                f"dataset.arrow.batch_rows={self.options.batch_rows}: {name} has {count} elements in a record batch, "
                f"and its 32-bit offsets address {_MOST_ELEMENTS}",
                hint="lower dataset.arrow.batch_rows, as datasets does for images (100)",
            )

    def select(self, folder: Path, names: Sequence[str]) -> Sequence[str]:
        return data_files(folder, names) if names else names

    def column_type(self, spec: ArraySpec) -> pa.DataType:
        import pyarrow as pa

        element = pa.from_numpy_dtype(spec.dtype)
        if spec.variable:
            return pa.binary() if spec.dtype == np.uint8 else pa.list_(element)
        return pa.list_(element, math.prod(spec.shape)) if spec.shape else element

    def inspect(self, path: Path) -> FileInfo:
        with closing(ArrowReader(path, self._specs, None)) as reader:
            check_container(path, self.options)
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        try:
            return ArrowReader(path, self._specs, self.options)
        except DataError:
            if path.is_file():
                with table_errors(path):
                    check_container(path, self.options)
            raise

    def layout(self, path: Path) -> FileLayout:
        with closing(ArrowReader(path, self._specs, None)) as reader, table_errors(path):
            arrays = {spec.name: array_layout(reader, path, spec, i) for i, spec in enumerate(self._specs)}
            read_bytes = path.stat().st_size if all(array.in_memory for array in arrays.values()) else 0
            return FileLayout(reader.num_samples, arrays, read_bytes=read_bytes)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        """Yields samples in file order, record batch after record batch."""
        assert isinstance(reader, ArrowReader)
        return reader.samples()
