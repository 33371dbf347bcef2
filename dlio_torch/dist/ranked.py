"""Base class of the communicators of several ranks: failure channel, timeouts, and one-line errors of collectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.dist.base import FailureHook, GradientReducer, ValueT, check_reducible
from dlio_torch.dist.failure.channel import FailureChannel
from dlio_torch.dist.failure.rendezvous import connect_to_rank_0
from dlio_torch.dist.failure.timeouts import CollectiveTimeout, deadline
from dlio_torch.errors import RunFailed
from dlio_torch.supervision import process_exit

if TYPE_CHECKING:
    import torch

_BACKEND_S = 5.0  # time that the backend's own timeout, if it has one, comes before ours
_VERDICT_S = 2.0  # for the failure channel to say why a collective failed
_TIMED_OUT = 0.9  # share of the timeout after which an error of the backend counts as its timeout


class RankedCommunicator(ABC):
    """A Communicator over several processes; a subclass adds the collectives.

    Args:
        rank: this process, 0 to ``world_size - 1``.
        world_size: number of processes.
        local_rank: number of this process on its node.
        detail: library that carries the messages.
        timeout_s: longest wait for the other ranks' connections.

    Raises:
        RunFailed: the ranks cannot connect.

    This constructor uses the collectives to open the failure channel, so they must work already.
    """

    name: str
    settings: Mapping[str, Any] = {}

    def __init__(self, rank: int, world_size: int, local_rank: int, detail: str, timeout_s: float) -> None:
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.detail = detail
        self._channel: FailureChannel | None = None
        self._timeout: CollectiveTimeout | None = None
        late = f"rank {rank} of {world_size}: the ranks did not connect within {timeout_s:g} s ({detail})"
        with deadline(timeout_s + _BACKEND_S, late), self._collective("connecting"):
            links = connect_to_rank_0(
                rank, world_size, lambda value: self._gather(value, 0), self._broadcast_first, timeout_s
            )
        self._timeout_s = timeout_s
        self._timeout = CollectiveTimeout(timeout_s + _BACKEND_S, self._end_overdue)
        self._channel = FailureChannel(rank, links, progress=self._timeout.progress)
        self.on_failure: list[FailureHook] = self._channel.hooks

    @abstractmethod
    def _barrier(self) -> None: ...

    @abstractmethod
    def _broadcast(self, value: Any, root: int) -> Any: ...

    @abstractmethod
    def _gather(self, value: Any, root: int) -> list[Any] | None: ...

    @abstractmethod
    def _allreduce(self, tensor: torch.Tensor) -> None: ...

    @abstractmethod
    def _reducer(self, size_bytes: int) -> GradientReducer: ...

    @abstractmethod
    def _disconnect(self) -> None:
        """Free the resources of the backend; called when all ranks have reached ``close``."""

    def barrier(self) -> None:
        """See ``Communicator.barrier``."""
        with self._collective("barrier"):
            self._barrier()

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """See ``Communicator.broadcast_object``."""
        with self._collective("broadcast"):
            received: ValueT = self._broadcast(value, root)
        return received

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """See ``Communicator.gather_objects``."""
        with self._collective("gather"):
            return self._gather(value, root)

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Communicator.allreduce``."""
        check_reducible(tensor)
        with self._collective("allreduce"):
            self._allreduce(tensor)
        return tensor

    def gradient_reducer(self, size_bytes: int) -> GradientReducer:
        """See ``Communicator.gradient_reducer``."""
        with self._collective("gradient reducer"):
            return _GuardedReducer(self, self._reducer(size_bytes))

    def watched_collective(self, name: str) -> AbstractContextManager[None]:
        """Watch a call that all ranks make together, with the timeout and the errors of the collectives.

        Args:
            name: name of the call, for messages.
        """
        return self._collective(name)

    def start_timeline(self, path: Path) -> None:  # noqa: B027 - not every backend has a timeline
        """See ``Communicator.start_timeline``; only Horovod has a timeline."""

    def stop_timeline(self) -> None:  # noqa: B027
        """See ``Communicator.stop_timeline``."""

    def fail(self, message: str, exit_code: int) -> None:
        """See ``Communicator.fail``."""
        if self._channel is not None:
            self._channel.fail(message, exit_code)

    def close(self) -> None:
        """See ``Communicator.close``."""
        if self._channel is None or not self._channel.is_open:
            return
        self.barrier()  # no rank tears down what another one still uses
        self._channel.close()
        if self._timeout is not None:
            self._timeout.stop()
        self._disconnect()

    def _broadcast_first(self, value: Any) -> Any:
        return self._broadcast(value, 0)

    @contextmanager
    def _collective(self, name: str) -> Iterator[None]:
        """Turn a backend's error into one line, unless another rank's failure or absence explains it."""
        timeout, channel = self._timeout, self._channel
        if timeout is not None:
            timeout.begin(name)
        try:
            yield
        except RuntimeError as error:
            if timeout is not None and channel is not None:
                number, waited_s = timeout.pause()
                # The error of a backend's own timeout does not name the absent rank.
                if waited_s >= _TIMED_OUT * self._timeout_s:
                    self._end_overdue(name, number)
                channel.wait_for_end(_VERDICT_S)
            raise RunFailed(
                f"{name} over {self.world_size} ranks failed on rank {self.rank} ({self.detail}): {first_line(error)}"
            ) from error
        finally:
            if timeout is not None:
                timeout.done()

    def _end_overdue(self, name: str, number: int) -> None:
        """End the run because of an absent rank; works in any thread, because the main thread may be blocked."""
        line = None
        if self._channel is not None:
            line = self._channel.end_for_absent_rank(name, number, self._timeout_s)
        # Only rank 0 knows all others: if it does not answer, one rank of each node prints a line.
        line = line or f"rank {self.rank} waited for {self._timeout_s:g} s in {name}"
        if self.rank <= 1 or self.local_rank == 0:
            process_exit.print_line(f"{process_exit.ERROR_PREFIX}{line}")
        if self._channel is not None:
            self._channel.run_hooks(line, RunFailed.exit_code)
        self.fail(line, RunFailed.exit_code)
        process_exit.end_children()
        process_exit.exit_now(RunFailed.exit_code)


class _GuardedReducer:
    """Wraps a backend's reducer, so that its timeouts and errors are handled like those of the other collectives."""

    def __init__(self, communicator: RankedCommunicator, reducer: GradientReducer) -> None:
        self.size_bytes = reducer.size_bytes
        self.gradient = reducer.gradient
        self._communicator = communicator
        self._step = reducer.step

    def step(self) -> None:
        """See ``GradientReducer.step``."""
        with self._communicator._collective("allreduce of the gradient"):
            self._step()


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or the error's type if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
