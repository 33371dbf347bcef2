"""Framed records: a header, then each sample's arrays behind their CRC-32."""

from __future__ import annotations

import math
import zlib
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error, os_errors
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from framed_format.facts import HEADER, MAGIC
from framed_format.options import FramedConfig

_CRC = 4


class FramedFormat(FieldFormat):
    """Records of fixed-length arrays."""

    name: ClassVar[str] = "framed"
    suffix: ClassVar[str] = ".frm"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options = config.of(FramedConfig)
        super().__init__(config, seed)
        self.record = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in self._specs)

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        del options["read_bytes"]  # how files are read changes none of their bytes
        return options

    @property
    def step(self) -> int:
        """Bytes from one record to the next."""
        return -(-(_CRC + self.record) // self.options.alignment) * self.options.alignment

    def stored_bytes(self) -> float:
        return float(self.step)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with path.open("wb") as file:
            file.write(HEADER.pack(MAGIC, num_samples, self.record).ljust(self._start, b"\0"))
            for sample in range(first_sample, first_sample + num_samples):
                content = b"".join(array.tobytes() for array in self.expected(sample).values())
                file.write((zlib.crc32(content).to_bytes(_CRC, "little") + content).ljust(self.step, b"\0"))

    def inspect(self, path: Path) -> FileInfo:
        reader = self.open(path)
        reader.close()
        assert reader.num_samples is not None
        return FileInfo(reader.num_samples, {"record_bytes": self.record})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return _FramedReader(path, self, self._specs)

    @property
    def _start(self) -> int:
        return -(-HEADER.size // self.options.alignment) * self.options.alignment


class _FramedReader(Reader):
    num_samples: int

    def __init__(self, path: Path, fmt: FramedFormat, specs: list[ArraySpec]) -> None:
        self._path, self._fmt, self._specs = path, fmt, specs
        try:
            self._file = path.open("rb", buffering=fmt.options.read_bytes)
        except OSError as error:
            raise open_error(path, error) from error
        with os_errors(path):
            head = self._file.read(HEADER.size)
        try:
            magic, self.num_samples, record = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
            size = fmt._start + self.num_samples * fmt.step
            if (magic, record) != (MAGIC, fmt.record) or path.stat().st_size != size:
                raise self._damaged("its header does not fit its size, or dataset.fields")
        except BaseException:
            self._file.close()
            raise

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        for i in range(count):
            with os_errors(self._path):
                self._file.seek(self._fmt._start + (first + i) * self._fmt.step)
                frame = self._file.read(_CRC + self._fmt.record)
            if len(frame) < _CRC + self._fmt.record or zlib.crc32(frame[_CRC:]) != int.from_bytes(
                frame[:_CRC], "little"
            ):
                raise self._damaged(f"the checksum of sample {first + i} does not fit")
            offset = _CRC
            for spec in self._specs:
                count_of = math.prod(spec.shape)
                array = np.frombuffer(frame, spec.dtype, count_of, offset)
                buffer.fixed[spec.name][position + i] = array.reshape(spec.shape)
                offset += array.nbytes

    def close(self) -> None:
        self._file.close()

    def _damaged(self, what: str) -> DataError:
        return DataError(f"{self._path}: {what}", hint="the file is damaged; generate it again")
