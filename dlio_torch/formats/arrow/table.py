"""Open Arrow IPC files: the record batches of the stream and of the file container.

An application opens a file as ``datasets`` does: mapped by ``_memory_mapped_arrow_table_from_file`` (``pa.memory_map``,
``open_stream``, ``read_all``), or read by ``_in_memory_arrow_table_from_file`` (``pa.input_stream``).  pyarrow advises
the system to read ahead what it maps (``MADV_WILLNEED``), so that opening a mapped file begins to read all of it.  To
learn about a file it is therefore mapped without any read-ahead, and only the metadata of its batches are touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.arrow.quiet_mapping import QuietMapping
from dlio_torch.formats.core.table_errors import table_errors
from dlio_torch.supervision.crashes import report_truncated_maps

if TYPE_CHECKING:
    import pyarrow as pa

    from dlio_torch.formats.core.layout import Ints

_MAGIC = b"ARROW1"  # a stream begins with other bytes


class ArrowTable:
    """Record batches of an open file.

    Args:
        path: the file.
        options: open it as an application does; ``None``: map it without read-ahead, to look at its metadata.

    Attributes:
        schema: of the columns.
        batches: those with rows.
        starts: first row of each batch, and the number of all rows; int64.
        container: ``stream`` or ``file``.
        mapped: address and bytes of the mapping without read-ahead; ``None``: opened as an application does.

    Raises:
        DataError: it cannot be opened, or is no Arrow IPC file.
    """

    def __init__(self, path: Path, options: ArrowConfig | None = None) -> None:
        self.mapped: tuple[int, int] | None = None
        if options is None or options.memory_map:
            report_truncated_maps()
        with table_errors(path):
            self._source: Any = self._open(path, options)
            try:
                self.container = options.ipc if options else _container(path)
                table = _all_batches(self._source, self.container)
                if options is not None and options.memory_map:
                    self._source.close()  # as the library, which keeps the mapping alone
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

    def _open(self, path: Path, options: ArrowConfig | None) -> Any:
        import pyarrow as pa

        if options is not None:
            path.exists()  # datasets looks for a file before it opens it
            return pa.memory_map(str(path)) if options.memory_map else pa.input_stream(str(path))
        mapping = QuietMapping(path)
        self.mapped = mapping.address, mapping.size
        return pa.BufferReader(pa.foreign_buffer(mapping.address, mapping.size, mapping))

    def close(self) -> None:
        """Close the file; the mapping goes when the last view of it does."""
        self.batches = []
        self._source.close()


def check_container(path: Path, options: ArrowConfig) -> None:
    """Raise unless the file has the container that ``dataset.arrow.ipc`` names.

    Raises:
        DataError: it has the other one.
        OSError: it cannot be read.
    """
    container = _container(path)
    if container != options.ipc:
        raise DataError(
            f"{path} is an Arrow IPC {container}, but dataset.arrow.ipc={options.ipc}",
            hint=f"set dataset.arrow.ipc={container}",
        )


def _container(path: Path) -> str:
    with path.open("rb") as file:
        return "file" if file.read(len(_MAGIC)) == _MAGIC else "stream"


def _all_batches(source: Any, container: str) -> pa.Table:
    import pyarrow as pa

    opener = pa.ipc.open_file if container == "file" else pa.ipc.open_stream
    return opener(source).read_all()
