"""Format ``parquet``: one column per field, read through pyarrow by row groups.

A scalar is a plain column, an array a fixed-size list, a variable-length array a list of its elements
(flattened: the rows' shape is the reader's to know).  Arrays of uint8 are binary columns, as images and
tokens are stored: Parquet has no integer below 32 bits, so a list of bytes would take four times the space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.table_format import TableFormat
from dlio_torch.formats.parquet.options import READING, ParquetConfig
from dlio_torch.formats.parquet.reader import ParquetReader, ParquetTable
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetFormat(TableFormat):
    """Arrays of ``dataset.fields`` as columns of Parquet files."""

    name: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"
    library: ClassVar[str] = "pyarrow.parquet"
    reading: ClassVar[tuple[str, ...]] = READING

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ParquetConfig = config.of(ParquetConfig)
        super().__init__(config, seed)
        self._compressibility = self.options.compressibility

    def stored_bytes(self) -> float:
        """Mean bytes of a sample in a file, from a trial file in memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        options, samples = self.options, self.config.samples_per_file
        group = min(samples, options.row_group_samples)
        count = self.trial_rows(group)
        table = self._table(0, count, None)
        file = pa.BufferOutputStream()
        with self._writer(file, table.schema) as writer:
            writer.write_table(table)
        content = file.getvalue()
        meta = pq.ParquetFile(content).metadata
        columns = meta.row_group(0)
        data = sum(columns.column(i).total_compressed_size for i in range(columns.num_columns))
        # What the schema takes in the footer comes once, the offsets of the columns in each row group.
        footer = (content.size - data) * (0.5 + 0.5 * math.ceil(samples / group))
        return float(data / count + footer / samples)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        size = self.options.row_group_samples
        with self._writer(path, self._schema()) as writer:
            for low in range(first_sample, first_sample + num_samples, size):
                count = min(size, first_sample + num_samples - low)
                writer.write_table(self._table(low, count, pool), row_group_size=count)

    def _writer(self, target: Any, schema: pa.Schema) -> Any:
        import pyarrow.parquet as pq

        # A dictionary of random values is only given up after its first MiB.
        options = self.options
        return pq.ParquetWriter(target, schema, compression=options.compression, use_dictionary=options.dictionary)

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(spec.name, self.column_type(spec), nullable=False) for spec in self._specs])

    def _table(self, first: int, count: int, pool: Executor | None) -> pa.Table:
        """Table of the columns of consecutive samples."""
        import pyarrow as pa

        return pa.Table.from_arrays(self.columns(first, count, pool), schema=self._schema())

    def column_type(self, spec: ArraySpec) -> pa.DataType:
        import pyarrow as pa

        size = math.prod(spec.shape)
        if spec.dtype == np.uint8 and (spec.shape or spec.variable):
            return pa.large_binary() if spec.variable else pa.binary(size)
        element = pa.from_numpy_dtype(spec.dtype)
        item = pa.field("element", element, nullable=False)
        if spec.variable:
            return pa.large_list(item)
        return pa.list_(item, size) if spec.shape else element

    def inspect(self, path: Path) -> FileInfo:
        with closing(ParquetReader(path, self._specs, self.options)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        reader = ParquetTable if self.options.read == "table" else ParquetReader
        return reader(path, self._specs, self.options)

    def layout(self, path: Path) -> FileLayout:
        """Layout of all samples in memory, because a row group cannot be decoded in part."""
        with closing(ParquetReader(path, self._specs, self.options)) as reader:
            return FileLayout(reader.num_samples, dict(reader.held()), read_bytes=reader.stored_bytes)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        """Yields samples in file order, with one row group or batch in memory."""
        assert isinstance(reader, ParquetReader | ParquetTable)
        return reader.samples()
