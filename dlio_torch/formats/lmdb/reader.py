"""Reader of LMDB environments: a transaction for each run of samples, a lookup for each array."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.lmdb.entry_keys import count_samples, entry_key, listed_keys
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.lmdb.shared_environments import SharedEnvironment, library


class LmdbReader(Reader):
    """Open LMDB environment.

    Args:
        path: folder or file.
        options: keys, and how the environment is opened.
        specs: arrays of a sample.

    Raises:
        DataError: it is no environment, or has another number of entries than ``specs`` need.
    """

    num_samples: int

    def __init__(self, path: Path, options: LmdbConfig, specs: list[ArraySpec]) -> None:
        self._path = path
        self._options = options
        self._specs = specs
        self._errors = library().Error
        self._environment = SharedEnvironment(path, options)
        try:
            self._keys = None if options.key else self._listed()
            if self._keys is None:
                entries = self._environment.get().stat()["entries"]
                self.num_samples = count_samples(options, entries, len(specs), path)
            else:
                self.num_samples = len(self._keys)
        except BaseException:
            self.close()
            raise

    def _listed(self) -> list[bytes]:
        with self._transaction() as transaction:
            return listed_keys(transaction, self._options)

    def _transaction(self) -> Any:
        try:
            return self._environment.get().begin(write=False, buffers=True)
        except self._errors as error:
            raise open_error(self._path, error) from error

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        try:
            with self._transaction() as transaction:
                for number in range(count):
                    for spec in self._specs:
                        key = self._key(spec, first + number)
                        self._put(spec, transaction.get(key), key, buffer, position + number)
        except DlioError:
            raise
        except self._errors as error:
            raise open_error(self._path, error) from error

    def _key(self, spec: ArraySpec, sample: int) -> bytes:
        return entry_key(self._options, spec, sample) if self._keys is None else self._keys[sample]

    def _put(self, spec: ArraySpec, value: memoryview | None, key: bytes, buffer: BatchBuffer, position: int) -> None:
        """Copies a value out of the map."""
        if value is None:
            raise DataError(
                f"{self._path} has no entry {key.decode(errors='replace')!r}",
                hint="correct dataset.lmdb.key or dataset.lmdb.first_index",
            )
        row = math.prod(spec.shape) * spec.dtype.itemsize
        if len(value) % row if spec.variable else len(value) != row:
            raise DataError(
                f"{self._path}: entry {key.decode(errors='replace')!r} has {len(value)} bytes, but field {spec.name} "
                f"expects {'a multiple of ' if spec.variable else ''}{row}",
                hint="correct dataset.fields, or name entries that are no samples in dataset.lmdb.other_entries",
            )
        array = np.frombuffer(value, spec.dtype)
        if spec.variable:
            buffer.put(spec.name, position, array.reshape(-1, *spec.shape).copy())
        else:
            buffer.fixed[spec.name][position] = array.reshape(spec.shape)

    def check_ends(self) -> dict[str, Any]:
        """Reads the first and the last sample; returns figures of the tree.

        Raises:
            DataError: one of them does not fit.
        """
        for sample in {0, self.num_samples - 1} if self.num_samples else ():
            self.read(sample, 1, BatchBuffer(self._specs, [sample]), 0)
        figures = self._environment.get().stat()
        return {"entries": figures["entries"], "page bytes": figures["psize"], "depth": figures["depth"]}

    def close(self) -> None:
        self._environment.close()
