"""Runs one rank with emulated storage: ``python -m benchmarks.predict_rank SECONDS LOCK argument ...``.

Each sample that is read out of an HDF5 file keeps the device busy for so many seconds; all processes that name the
same lock file share the device, which serves one sample at a time.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from typing import Any
from unittest import mock

from dlio_torch import cli
from dlio_torch.formats.hdf5 import reader as hdf5_reader


def main(seconds: float, lock: str, arguments: list[str]) -> int:
    read = hdf5_reader.Hdf5Reader.read

    def slow(self: Any, first: int, count: int, *where: Any) -> None:
        # Opened anew each time: locks belong to what open() gave, which forked workers would share.
        device = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(device, fcntl.LOCK_EX)
            time.sleep(seconds * count)
        finally:
            os.close(device)
        read(self, first, count, *where)

    with mock.patch.object(hdf5_reader.Hdf5Reader, "read", slow if seconds else read):
        return cli.main(arguments)


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
