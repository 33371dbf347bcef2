"""Pool of buffers for single samples that are read long before their delivery."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]
_SLAB = 1 << 20  # bytes of one allocation, at least one buffer
_STEPS = 4  # sizes of buffers between one power of two and the next


class BufferPool:
    """Thread-safe pool of reusable buffers for single samples.

    Sizes are rounded up by a quarter at most, so that samples of about the same size use the same buffers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[int]] = {}
        self._slabs: list[npt.NDArray[np.uint8]] = []

    def take(self, sizes: Ints) -> Ints:
        """Takes buffers of at least these sizes; returns their addresses, int64 of the same shape."""
        rooms = _rooms(sizes)
        addresses = np.empty(len(sizes), np.int64)
        with self._lock:
            for room in np.unique(rooms).tolist():
                positions = np.flatnonzero(rooms == room)
                free = self._free.setdefault(room, [])
                if len(free) < len(positions):
                    free += self._slab(room, len(positions) - len(free))
                addresses[positions] = free[len(free) - len(positions) :]
                del free[len(free) - len(positions) :]
        return addresses

    def give(self, addresses: Ints, sizes: Ints) -> None:
        """Return buffers to the pool; ``sizes`` are those of :meth:`take`."""
        rooms = _rooms(sizes)
        with self._lock:
            for room in np.unique(rooms).tolist():
                self._free[room] += addresses[rooms == room].tolist()

    def _slab(self, room: int, least: int) -> list[int]:
        count = max(least, _SLAB // room)
        slab = np.empty(count * room, np.uint8)
        self._slabs.append(slab)
        first = address_of(slab)
        return [first + number * room for number in range(count)]


def _rooms(sizes: Ints) -> Ints:
    """Buffer size in bytes for each requested size."""
    step = np.maximum(1, 1 << np.maximum(0, np.frexp(np.maximum(sizes, 1))[1].astype(np.int64) - 1)) // _STEPS
    step = np.maximum(step, 16)
    rooms: Ints = np.maximum(1, -(-sizes // step)) * step
    return rooms
