"""The Communicator protocol, and the communicator of a run with one process.

Everything above this layer talks to other ranks through these few calls, so that Horovod, MPI,
``torch.distributed`` and a single process are interchangeable.  One contract suite tests them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import torch

FailureHook = Callable[[str, int], None]
"""Called as ``hook(line, exit_code)`` when another rank failed, shortly before this process ends."""

ValueT = TypeVar("ValueT")

REDUCIBLE = ("float32", "float64", "int32", "int64")
"""Element types that ``Communicator.allreduce`` accepts, because every backend can sum them."""


class GradientReducer(Protocol):
    """Averages a gradient of a fixed size over all ranks, once per step.

    Attributes:
        size_bytes: size of the gradient that each rank contributes, whole float32 elements.
        gradient: the tensors (float32, one-dimensional) that hold it; a caller may fill them before
            a step and finds the average of all ranks in them afterwards.
    """

    size_bytes: int
    gradient: list[torch.Tensor]

    def step(self) -> None:
        """Average the gradient over all ranks; returns when this rank holds the result.

        Raises:
            RunFailed: the collective failed.
        """


@runtime_checkable
class Communicator(Protocol):
    """The collectives of a rank.

    All ranks make the same calls in the same order, from one thread.  If another rank fails or
    dies, no call returns or raises: the process ends by itself with that rank's exit code
    (see ``fail``).

    Attributes:
        name: ``single``, ``torch``, ``horovod`` or ``mpi``.
        rank: number of this process, 0 to ``world_size - 1``.
        world_size: number of processes.
        local_rank: number of this process on its node.
        detail: library that carries the messages, for the report (for example ``gloo``, ``nccl``, ``mpi``).
        settings: the backend's own settings in force, JSON-able; empty if it has none.
        on_failure: hooks that run after another rank has failed and before this process ends, in a thread of
            their own and for one second at most.  The main thread may be blocked then.
    """

    name: str
    rank: int
    world_size: int
    local_rank: int
    detail: str
    settings: Mapping[str, Any]
    on_failure: list[FailureHook]

    def barrier(self) -> None:
        """Wait until every rank has called ``barrier``."""

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """Returns the root's ``value`` on every rank; the value must be picklable."""

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """Returns every rank's ``value`` in the order of ranks on the root, and ``None`` on other ranks."""

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum ``tensor`` (contiguous; float32, float64, int32 or int64) over all ranks, in place.

        Returns:
            ``tensor`` itself, which then holds the sum on every rank.

        Raises:
            TypeError: another element type.
        """

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """Returns a reducer of a float32 gradient of ``size_bytes`` (at least 1; rounded up to whole elements)."""

    def start_timeline(self, path: Path) -> None:
        """Start the backend's own timeline, written to ``path``, if the ranks were connected with ``timeline``."""

    def stop_timeline(self) -> None:
        """Complete the timeline; called after the last collective that the timeline should show."""

    def fail(self, message: str, exit_code: int) -> None:
        """Tell the other ranks that this one ends with ``exit_code``; they end with the same code.

        Rank 0 prints ``rank <n> failed: <message>``; a rank that fails prints its own line itself.
        Returns when the others are about to end, after two seconds at the latest.  Call it just before
        ``sys.exit(exit_code)``: from now on the process ends with ``exit_code`` as soon as the
        interpreter exits, and after five seconds in any case, so that no destructor can block it.
        A second call does nothing, and neither does a call in a child process.
        """

    def close(self) -> None:
        """Leave the group after every rank has called it; called once, after all other calls.

        After ``fail`` it does nothing.  A process that ends without either counts as failed.
        """


class SingleReducer:
    """The reducer of one process: there is nothing to average."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = element_count(size_bytes) * 4
        self.gradient: list[torch.Tensor] = []

    def step(self) -> None:
        """Do nothing: the average over one rank is the gradient itself."""


class SingleCommunicator:
    """The communicator of one process: every call returns at once."""

    name = "single"
    rank = 0
    world_size = 1
    local_rank = 0
    detail = "one process"

    def __init__(self) -> None:
        self.settings: Mapping[str, Any] = {}
        self.on_failure: list[FailureHook] = []

    def barrier(self) -> None:
        """Return at once."""

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """Returns ``value``."""
        return value

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """Returns ``[value]``."""
        return [value]

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns ``tensor`` unchanged."""
        check_reducible(tensor)
        return tensor

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """Returns a reducer that does nothing and holds no memory."""
        return SingleReducer(size_bytes)

    def start_timeline(self, path: Path) -> None:
        """Do nothing: one process has no backend."""

    def stop_timeline(self) -> None:
        """Do nothing."""

    def fail(self, message: str, exit_code: int) -> None:
        """Do nothing: there is no other rank."""

    def close(self) -> None:
        """Do nothing."""


def check_reducible(tensor: torch.Tensor) -> None:
    """Raise TypeError unless every backend can sum this tensor's element type."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in REDUCIBLE:
        raise TypeError(f"allreduce of {dtype} is not supported; use one of {', '.join(REDUCIBLE)}")


def element_count(size_bytes: int) -> int:
    """Returns the number of float32 elements of a gradient of ``size_bytes``, rounded up."""
    if size_bytes < 1:
        raise ValueError(f"a gradient of {size_bytes} bytes cannot be averaged: it has no elements")
    return -(-size_bytes // 4)
