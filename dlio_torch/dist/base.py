"""The Communicator protocol, and the communicator of one process.

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
"""Element types of ``Communicator.allreduce``: what every backend can sum."""


class GradientReducer(Protocol):
    """Reduces a gradient of a fixed size over all ranks, once per step.

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
    """What a rank can do with the others.

    All ranks make the same calls in the same order, from one thread.  Where another rank fails or
    dies, no call here returns or raises: the process ends by itself with that rank's exit code
    (see ``fail``).

    Attributes:
        name: ``single``, ``torch``, ``horovod`` or ``mpi``.
        rank: number of this process, 0 to ``world_size - 1``.
        world_size: number of processes.
        local_rank: number of this process on its node.
        detail: what carries the messages, for the report (for example ``gloo``, ``nccl``, ``mpi``).
        settings: the backend's own settings in force, JSON-able; empty where it has none to tell.
        on_failure: hooks that run, in a thread of their own and for one second at most, when
            another rank failed and before this process ends.  The main thread may be blocked then.
    """

    name: str
    rank: int
    world_size: int
    local_rank: int
    detail: str
    settings: Mapping[str, Any]
    on_failure: list[FailureHook]

    def barrier(self) -> None:
        """Return when every rank has called it."""

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """The root's ``value``, on every rank; values must be picklable."""

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """Every rank's ``value`` in the order of ranks on the root, ``None`` elsewhere."""

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum ``tensor`` (contiguous; float32, float64, int32 or int64) over all ranks, in place.

        Returns:
            ``tensor`` itself, which then holds the sum on every rank.

        Raises:
            TypeError: another element type.
        """

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """A reducer of a float32 gradient of ``size_bytes`` (at least one; rounded up to whole elements)."""

    def start_timeline(self, path: Path) -> None:
        """Have the backend write what it does to ``path`` from now on, if it was connected for that."""

    def stop_timeline(self) -> None:
        """The file is complete; to be called once all collectives that it shall show are over."""

    def fail(self, message: str, exit_code: int) -> None:
        """Tell the other ranks that this one ends with ``exit_code``; they end with the same code.

        Rank 0 prints ``rank <n> failed: <message>``; a rank that fails prints its own line itself.
        Returns when the others are about to end, after two seconds at the latest.  It must be the
        last thing but ``sys.exit(exit_code)``: from here on the process ends with ``exit_code`` as
        soon as the interpreter exits, and after five seconds whatever it does, so that no destructor
        can keep it.  A second call does nothing.  In a child process it does nothing.
        """

    def close(self) -> None:
        """Leave the group, when every rank has come here; called once, after all other calls.

        After ``fail`` it does nothing.  A process that ends without either is taken for a failure.
        """


class SingleReducer:
    """The gradient of one process: there is nobody to average with."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = element_count(size_bytes) * 4
        self.gradient: list[torch.Tensor] = []

    def step(self) -> None:
        """Nothing: the average over one rank is the gradient itself."""


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
        """The value itself."""
        return value

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """The value alone in a list."""
        return [value]

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself."""
        check_reducible(tensor)
        return tensor

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """A reducer that does nothing and holds no memory."""
        return SingleReducer(size_bytes)

    def start_timeline(self, path: Path) -> None:
        """Nothing: one process has no backend."""

    def stop_timeline(self) -> None:
        """Nothing."""

    def fail(self, message: str, exit_code: int) -> None:
        """Nothing: nobody is to be told."""

    def close(self) -> None:
        """Nothing."""


def check_reducible(tensor: torch.Tensor) -> None:
    """Raise TypeError unless every backend can sum this tensor's element type."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in REDUCIBLE:
        raise TypeError(f"allreduce of {dtype}: ranks can sum {', '.join(REDUCIBLE)} only")


def element_count(size_bytes: int) -> int:
    """Float32 elements of a gradient of ``size_bytes``, rounded up."""
    if size_bytes < 1:
        raise ValueError(f"a gradient of {size_bytes} bytes cannot be reduced")
    return -(-size_bytes // 4)
