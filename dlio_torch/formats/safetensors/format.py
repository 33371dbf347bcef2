"""Format ``safetensors``: named arrays in a file, through the safetensors library.

With ``samples=rows`` an array has shape (samples, *shape); with ``samples=file`` each file is one sample and an array
has the sample's own shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import Stacking
from dlio_torch.formats.safetensors.facts import LENGTH
from dlio_torch.formats.safetensors.layout import file_layout
from dlio_torch.formats.safetensors.options import SAMPLES_OPTION, SafetensorsConfig
from dlio_torch.formats.safetensors.reader import LoadedReader, RowsReader, check_backend
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_ALIGNMENT = 8  # of the header


class SafetensorsFormat(FieldFormat):
    """Arrays of ``dataset.fields`` in safetensors files."""

    name: ClassVar[str] = "safetensors"
    suffix: ClassVar[str] = ".safetensors"
    has_layout: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: SafetensorsConfig = config.of(SafetensorsConfig)
        super().__init__(config, seed)
        import_library("safetensors", "dataset.format=safetensors needs safetensors", "safetensors")
        check_backend(self.options)
        self._stacking = Stacking(self.options.samples == "rows", SAMPLES_OPTION)

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for key in ("framework", "backend", "reopen"):  # of reading: another value reads the same file
            del options[key]
        return options

    def stored_bytes(self) -> float:
        samples = self.config.samples_per_file
        header = {}
        end = 0
        for number, (field, spec) in enumerate(zip(self.config.fields, self._specs, strict=True)):
            size = round(self.field_bytes(number) * samples)
            shape = self._stacking.shape(spec, samples, round(field.length_mean))
            header[spec.name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = len(json.dumps(header, separators=(",", ":")))
        return self.sample_bytes() + (LENGTH + -(-text // _ALIGNMENT) * _ALIGNMENT) / samples

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        from safetensors.numpy import save_file

        save_file(dict(self._arrays(first_sample, num_samples, pool)), path)

    def _arrays(self, first: int, count: int, pool: Executor) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Names and elements of the arrays of a file; the library takes whole ones."""
        for number, spec in enumerate(self._specs):
            rows = self.rows(number, first, count)
            array = np.empty((int(rows.sum()), *spec.shape), spec.dtype)
            start = 0
            for block in self.blocks(number, first, count, pool):
                array[start : start + len(block)] = block
                start += len(block)
            yield spec.name, array.reshape(self._stacking.shape(spec, count, len(array)))

    def inspect(self, path: Path) -> FileInfo:
        if self._stacking.stacked:
            with closing(RowsReader(path, self._specs, self.options)) as reader:
                return FileInfo(reader.num_samples, reader.describe())
        self.layout(path)  # from the header; the library would load the sample
        return FileInfo(1, {})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        if self._stacking.stacked:
            return RowsReader(path, self._specs, self.options)
        return LoadedReader(path, self._specs, self.options)

    def layout(self, path: Path) -> FileLayout:
        return file_layout(path, self._specs, rows=self._stacking.stacked)
