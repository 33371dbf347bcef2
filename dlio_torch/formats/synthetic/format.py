"""Format ``synthetic``: identical samples in memory, without files.

What is left of a step when the storage costs nothing is the tool's own work; ``doctor`` measures it
with this format.  Reading copies nothing and calls nothing.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from pathlib import Path
from typing import ClassVar

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.synthetic.layout import Repeated
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class SyntheticFormat(Format):
    """One small row for each sample, kept in memory."""

    name: ClassVar[str] = "synthetic"
    suffix: ClassVar[str] = ""
    needs_files: ClassVar[bool] = False
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        if any(field.length_mean > 0 for field in config.fields):
            raise ConfigError(
                "dataset.fields: length_mean cannot be used with dataset.format=synthetic, whose samples have a "
                "fixed length",
                hint="remove length_mean from the fields",
            )
        self._specs = specs_of(config.fields)

    def specs(self) -> list[ArraySpec]:
        return list(self._specs)

    def expected(self, sample: int) -> Sample:
        return {
            spec.name: payload.array(payload.rng(self.seed, 0, number), spec.shape, spec.dtype)
            for number, spec in enumerate(self._specs)
        }

    def sample_bytes(self) -> float:
        return float(sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in self._specs))

    def stored_bytes(self) -> float:
        return 0.0

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        raise NotImplementedError("a synthetic data set has no files")  # needs_files says so

    def inspect(self, path: Path) -> FileInfo:
        return FileInfo(self.config.samples_per_file, {})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return _SyntheticReader(self)

    def layout(self, path: Path) -> FileLayout:
        arrays, count = self.expected(0), self.num_samples()
        return FileLayout(None, {name: Repeated(path, array, count) for name, array in arrays.items()})

    def num_samples(self) -> int:
        """Number of samples in the larger split, because a reader does not know which split it reads."""
        return max(self.config.samples_per_file, self.config.samples_per_file_eval)


class _SyntheticReader(Reader):
    """Reader that copies each sample from one array in memory."""

    num_samples: int

    def __init__(self, fmt: SyntheticFormat) -> None:
        self._arrays = fmt.expected(0)
        self.num_samples = fmt.num_samples()

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        if first < 0 or first + count > self.num_samples:
            raise DataError(
                f"the synthetic data set has {self.num_samples} samples, but samples {first} to {first + count - 1} "
                "were requested"
            )
        for name, array in self._arrays.items():
            buffer.fixed[name][position : position + count] = array

    def close(self) -> None:
        pass
