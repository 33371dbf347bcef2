"""Open Arrow IPC files: the record batches of the stream and of the file container, with the calls of ``datasets``.

A mapped file is opened as datasets' ``_memory_mapped_arrow_table_from_file`` does (``pa.memory_map``, ``open_stream``,
``read_all``), which touches the metadata of all record batches and no samples.  A file that is read is opened as
``_in_memory_arrow_table_from_file`` does (``pa.input_stream``), which reads all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_torch.formats.core.table_errors import table_errors
from dlio_torch.supervision.crashes import report_truncated_maps

if TYPE_CHECKING:
    import pyarrow as pa

    from dlio_torch.formats.core.layout import Ints

MAGIC = b"ARROW1"
"""First bytes of the file container; a stream has none."""


class ArrowTable:
    """Record batches of an open file.

    Args:
        path: the file.
        memory_map: map it, or read it whole.

    Attributes:
        schema: of the columns.
        batches: those with rows.
        starts: first row of each batch, and the number of all rows; int64.
        mapped: address and bytes of the mapping; ``None``: the file was read.

    Raises:
        DataError: it cannot be opened, or is no Arrow IPC file.
    """

    def __init__(self, path: Path, *, memory_map: bool) -> None:
        import pyarrow as pa

        if memory_map:
            report_truncated_maps()
        self.mapped: tuple[int, int] | None = None
        with table_errors(path):
            self._source: Any = pa.memory_map(str(path)) if memory_map else pa.input_stream(str(path))
            try:
                table = self._mapped_table() if memory_map else self._read_table(path)
            except BaseException:
                self.close()
                raise
        self.schema: pa.Schema = table.schema
        self.batches: list[pa.RecordBatch] = [batch for batch in table.to_batches() if batch.num_rows]
        self.starts: Ints = np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """Rows of all batches."""
        return int(self.starts[-1])

    def _mapped_table(self) -> pa.Table:
        import pyarrow as pa

        source = self._source
        whole = source.read_buffer(source.size())  # a view: nothing is read
        self.mapped = whole.address, whole.size
        source.seek(0)
        if whole.slice(0, len(MAGIC)).to_pybytes() == MAGIC:
            return pa.ipc.open_file(source).read_all()
        return pa.ipc.open_stream(source).read_all()

    def _read_table(self, path: Path) -> pa.Table:
        """Reads the file as a stream, and if it is none, as the file container, as the loader of datasets does."""
        import pyarrow as pa

        try:
            return pa.ipc.open_stream(self._source).read_all()
        except pa.ArrowInvalid as error:
            self._source.close()
            self._source = pa.OSFile(str(path), "rb")
            try:
                return pa.ipc.open_file(self._source).read_all()
            except pa.ArrowInvalid:
                raise error from None

    def close(self) -> None:
        """Close the file; the mapping goes when the last view of it does."""
        self.batches = []
        self._source.close()
