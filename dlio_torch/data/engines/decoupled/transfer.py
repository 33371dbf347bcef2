"""Transfer of batches from a worker: only their locations in shared memory go through a pipe."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.engines.decoupled.batch_groups import batches_of
from dlio_torch.data.engines.decoupled.block_pool import Memory, watched
from dlio_torch.data.engines.decoupled.pinning import Pinned
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import FREE, HELD, RING, Region
from dlio_torch.data.engines.decoupled.worker_messages import FILLED, layout_of
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import ArraySpec, Batch, as_tensor

_There = tuple[int, int, tuple[int, ...], str]  # block, first byte in it, shape, type
_Array = _There | npt.NDArray[np.generic]  # what lies in no block is small


class _SentBatch(NamedTuple):
    """:class:`Fetched` whose arrays are given by their locations in shared memory."""

    arrays: dict[str, _Array]
    number: int
    error: DlioError | None


class Sent(NamedTuple):
    """Message with the batches of a group.

    Attributes:
        items: batches, or errors in place of them, in their order.
    """

    items: list[_SentBatch]


def send(items: Sequence[Fetched], blocks: SharedBlocks) -> Sent:
    """Transfer the batches of a group to the trainer."""
    sent: list[_SentBatch] = []
    used: set[int] = set()
    for item in items:
        arrays: dict[str, _Array] = {}
        for name, tensor in item.batch.items():
            array, position = tensor.numpy(), blocks.position_of(tensor)
            arrays[name] = array if position is None else (*position, array.shape, array.dtype.str)
            if position is not None:
                used.add(position[0])
        sent.append(_SentBatch(arrays, item.number, item.error))
    for block in used:
        blocks.send(block)
    return Sent(sent)


class Inbox:
    """Trainer's end of the transfer from a worker.

    Args:
        region: of the worker.
        pinned: lock the memory of blocks for copies to a GPU, each once.
    """

    def __init__(self, region: Region, *, pinned: bool) -> None:
        self._region = region
        self._pinned = Pinned() if pinned else None
        self._pid = os.getpid()
        self._held: dict[int, weakref.ref[Memory]] = {}

    def receive(self, specs: Sequence[ArraySpec]) -> list[Fetched] | BaseException:
        """Receives the next group that the worker has published: its batches, or the error of the worker.

        Args:
            specs: arrays of a sample.
        """
        region = self._region
        _, kind, block, first, size = region.ring[region.received % RING].tolist()
        region.received += 1
        memory = self._hold(block)
        if kind == FILLED:
            return [Fetched(batch) for batch in batches_of(layout_of(memory, first, size, specs), memory)]
        message: Sent | BaseException = pickle.loads(memory[:size].tobytes())
        return self.open(message) if isinstance(message, Sent) else message

    def open(self, sent: Sent) -> list[Fetched]:
        """Returns the batches as views of the worker's memory; a block returns to the worker when no view is left."""
        memories: dict[int, Memory] = {}
        items: list[Fetched] = []
        for item in sent.items:
            batch: Batch = {}
            for name, array in item.arrays.items():
                if isinstance(array, tuple):
                    block, first, shape, kind = array
                    memory = memories.get(block)
                    if memory is None:
                        memory = memories[block] = self._hold(block)
                    array = np.ndarray(shape, kind, memory, first)  # noqa: PLW2901
                batch[name] = as_tensor(array)
            items.append(Fetched(batch, item.number, item.error))
        return items

    def close(self) -> None:
        """Unpin the memory."""
        if self._pinned is not None:
            self._pinned.close()

    def _hold(self, block: int) -> Memory:
        region = self._region
        memory = region.memory(block, int(region.size[block]))
        region.state[block] = HELD
        if self._pinned is not None:
            self._pinned.pin(block, memory)
        self._held[block] = watched(memory, lambda _: self._let_go(block))
        return memory

    def _let_go(self, block: int) -> None:
        # A worker that is forked later inherits the views, and drops them when it likes.
        if os.getpid() == self._pid:
            self._held.pop(block, None)
            self._region.freed[block] = time.monotonic_ns()
            self._region.state[block] = FREE
