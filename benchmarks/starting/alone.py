"""One rank of many without the others: messages of rank 0 are stored and given to a rank that starts later.

All ranks make the same calls in the same order, so what rank 0 broadcasts is what any other rank gets.  Rank 0 gets
as many values as there are ranks where it gathers them: copies of its own, so that they take the memory that they
would take.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TypeVar

import torch

from dlio_torch.dist.base import FailureHook, GradientReducer, SingleReducer

ValueT = TypeVar("ValueT")


class Alone:
    """A Communicator for one rank without the others.

    Args:
        rank: this rank.
        world_size: all ranks.
        sent: file of what rank 0 has broadcast; rank 0 writes it, others read it.

    Attributes:
        received_bytes: size of all that rank 0 has sent to this rank.
        gathered_bytes: size of all that this rank has sent to rank 0.
    """

    name = "alone"
    detail = "this process runs one rank of many; the other ranks do not exist"
    local_rank = 0

    def __init__(self, rank: int, world_size: int, sent: Path) -> None:
        self.rank, self.world_size = rank, world_size
        self.on_failure: list[FailureHook] = []
        self.received_bytes = self.gathered_bytes = 0
        self._sent = sent.open("wb" if rank == 0 else "rb")

    def barrier(self) -> None:
        """Returns at once, without waiting for other ranks."""

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """The object that rank 0 has sent at this point."""
        if self.rank == 0:
            blob = pickle.dumps(value)
            self._sent.write(len(blob).to_bytes(8, "little") + blob)
        else:
            blob = self._sent.read(int.from_bytes(self._sent.read(8), "little"))
            value = pickle.loads(blob)
        self.received_bytes += len(blob)
        return value

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """A copy of the object for each rank on rank 0; ``None`` on other ranks."""
        blob = pickle.dumps(value)
        self.gathered_bytes += len(blob)
        return [pickle.loads(blob) for _ in range(self.world_size)] if self.rank == 0 else None

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the tensor unchanged."""
        return tensor

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """A gradient reducer that does nothing."""
        return SingleReducer(size_bytes)

    def fail(self, message: str, exit_code: int) -> None:
        """Does nothing, as there are no other ranks."""

    def close(self) -> None:
        """Does nothing."""
        self._sent.close()
