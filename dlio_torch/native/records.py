"""Reading and parsing of many TFRecord records in one call of ``read_records.c``."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]
KINDS = {"bytes": 1, "floats": 2, "integers": 3}
"""Kinds of a feature by field numbers of the message Feature."""

_LAYOUTS = itertools.count(1)
_FIRST = 1 << 12  # records for which a scan has room at first


class RecordError(Exception):
    """Error for a record that could not be read, or that the native code does not support.

    Attributes:
        record: its number among those asked for; those before it are done.
        errno: what the system said; ``None``: look at the record.
    """

    def __init__(self, record: int, errno: int | None = None) -> None:
        super().__init__(record, errno)
        self.record, self.errno = record, errno


class NativeRecords:
    """Thread-safe native reader of TFRecord records.

    Args:
        features: name and kind (see :data:`KINDS`) of the arrays of a record.
        verify: compare the checksums.

    Attributes:
        implementation: the C file or library that does the work, for reports.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self, features: Sequence[tuple[str, str]], *, verify: bool) -> None:
        library, file = native.open_library("read_records")
        self.implementation = f"read_records.c, {file.origin}"
        self._verify = int(verify)
        self._names = [np.frombuffer(name.encode(), np.uint8) for name, _ in features]
        self._features = np.array(
            [(address_of(name), len(name), KINDS[kind]) for name, (_, kind) in zip(self._names, features, strict=True)],
            np.int64,
        ).reshape(-1, 3)
        self._layout = next(_LAYOUTS)
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._scan = library.dlio_scan_records
        self._scan.restype = integer
        self._scan.argtypes = [ctypes.c_int, integer, ctypes.c_int, pointer, integer, pointer]
        self._measure = library.dlio_measure_records
        self._measure.restype = integer
        self._measure.argtypes = [integer, ctypes.c_int, *[pointer] * 3, integer, pointer, pointer]
        self._read = library.dlio_read_records
        self._read.restype = integer
        self._read.argtypes = [
            integer, ctypes.c_int, *[pointer] * 3, integer, pointer, pointer, ctypes.c_int, integer, pointer, integer,
            pointer, pointer,
        ]  # fmt: skip
        self._state_bytes = library.dlio_records_state_bytes
        self._state_bytes.restype = integer
        self._local = threading.local()

    def file_row(self, descriptor: int) -> Ints:
        """An open file as ``struct record_file`` of ``core_tasks.h``; valid as long as this object."""
        return np.array(
            [descriptor, address_of(self._features), len(self._features), self._verify, self._layout], np.int64
        )

    def scan(self, descriptor: int, size: int) -> Ints:
        """Offsets of all records in a file of ``size`` bytes, and the end of the last; int64 of ``(records + 1,)``.

        Raises:
            RecordError: a record is damaged, or the file is cut.
        """
        offsets, count = np.zeros(_FIRST, np.int64), np.zeros(1, np.int64)
        while True:
            result = self._scan(
                descriptor, size, self._verify, address_of(offsets), len(offsets), address_of(count)
            )  # fmt: skip
            number = int(count[0])
            if result:
                raise RecordError(number, -result if result < 0 else None)
            if offsets[number] >= size:
                borders: Ints = offsets[: number + 1].copy()
                return borders
            offsets = np.concatenate([offsets, np.zeros(2 * len(offsets), np.int64)])

    def measure(self, descriptor: int, offsets: Ints, spans: Ints) -> Ints:
        """Bytes in memory of each array of the given records; int64 of ``(records, arrays)``.

        Raises:
            RecordError: a record is not for this code.
        """
        sizes, failed = np.zeros((len(offsets), len(self._features)), np.int64), np.zeros(1, np.int64)
        result = self._measure(
            len(offsets), descriptor, address_of(offsets), address_of(spans), address_of(self._features),
            len(self._features), address_of(sizes), address_of(failed),
        )  # fmt: skip
        if result:
            raise RecordError(int(failed[0]))
        return sizes

    def read(self, descriptor: int, offsets: Ints, spans: Ints, to: Ints, sizes: Ints, request: int) -> None:
        """Read records and write their arrays to the given addresses.

        Args:
            descriptor: of the open file.
            offsets: first byte of each record in the file; int64, like the others contiguous.
            spans: bytes of each record with its framing.
            to: where each array goes; of shape ``(records, arrays)``.
            sizes: bytes that each array must have; of the same shape.
            request: most bytes of a request.

        Raises:
            RecordError: a record is damaged or not for this code; the ones before it are done.
        """
        if not len(offsets):
            return
        local, longest = self._local, int(spans.max())
        if not hasattr(local, "state"):
            local.state = np.zeros(self._state_bytes(), np.uint8)
            local.scratch = np.empty(0, np.uint8)
        room = max(request, longest) + longest
        if len(local.scratch) < room:
            local.scratch = np.empty(room, np.uint8)
        failed = np.zeros(1, np.int64)
        result = self._read(
            len(offsets), descriptor, address_of(offsets), address_of(spans), address_of(self._features),
            len(self._features), address_of(to), address_of(sizes), self._verify, request, address_of(local.scratch),
            len(local.scratch), address_of(local.state), address_of(failed),
        )  # fmt: skip
        if result:
            raise RecordError(int(failed[0]), -result if result < 0 else None)
