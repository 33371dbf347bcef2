"""What the communicators of several ranks share: the failure channel, and errors that make sense."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.dist import leave
from dlio_torch.dist.base import FailureHook, GradientReducer, ValueT, check_reducible
from dlio_torch.dist.meet import meet
from dlio_torch.dist.overdue import Overdue
from dlio_torch.dist.watch import FailureChannel
from dlio_torch.errors import RunFailed

if TYPE_CHECKING:
    import torch

_BACKEND_S = 5.0  # for the backend's own timeout, where it has one, to be the first
_VERDICT_S = 2.0  # for the failure channel to say why a collective failed
_TIMED_OUT = 0.9  # of the timeout, after which a backend's error is taken for its timeout


class RankedCommunicator(ABC):
    """A Communicator over several processes; a subclass brings the collectives.

    Args:
        rank: this process, 0 to ``world_size - 1``.
        world_size: number of processes.
        local_rank: number of this process on its node.
        detail: what carries the messages.
        timeout_s: longest wait for the other ranks' connections.

    Raises:
        RunFailed: the ranks do not reach each other.

    The collectives must work when this constructor runs: the failure channel is opened through them.
    """

    name: str
    settings: Mapping[str, Any] = {}

    def __init__(self, rank: int, world_size: int, local_rank: int, detail: str, timeout_s: float) -> None:
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.detail = detail
        self._channel: FailureChannel | None = None
        self._overdue: Overdue | None = None
        late = f"rank {rank} of {world_size}: the ranks did not connect within {timeout_s:g} s ({detail})"
        with deadline(timeout_s + _BACKEND_S, late), self._collective("connecting"):
            links = meet(rank, world_size, lambda value: self._gather(value, 0), self._broadcast_first, timeout_s)
        self._timeout_s = timeout_s
        self._overdue = Overdue(timeout_s + _BACKEND_S, self._end_overdue)
        self._channel = FailureChannel(rank, links, where=self._overdue.where)
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
        """Free what the backend holds; all ranks have come here."""

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

    def together(self, what: str) -> AbstractContextManager[None]:
        """Watch a call that all ranks make together, as the collectives are watched.

        An error of the backend is one line, or another rank's failure, and a rank that does not come is not waited for
        longer than the timeout.
        """
        return self._collective(what)

    def start_timeline(self, path: Path) -> None:  # noqa: B027 - not every backend has a timeline
        """See ``Communicator.start_timeline``; only Horovod has one."""

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
        if self._overdue is not None:
            self._overdue.stop()
        self._disconnect()

    def _broadcast_first(self, value: Any) -> Any:
        return self._broadcast(value, 0)

    @contextmanager
    def _collective(self, what: str) -> Iterator[None]:
        """Turn a backend's error into one line, unless another rank's failure or absence explains it."""
        overdue, channel = self._overdue, self._channel
        if overdue is not None:
            overdue.begin(what)
        try:
            yield
        except RuntimeError as error:
            if overdue is not None and channel is not None:
                number, waited_s = overdue.pause()
                # A backend that has a timeout says that it has passed, and not who did not come.
                if waited_s >= _TIMED_OUT * self._timeout_s:
                    self._end_overdue(what, number)
                channel.wait_for_end(_VERDICT_S)
            raise RunFailed(
                f"{what} over {self.world_size} ranks failed on rank {self.rank} ({self.detail}): {first_line(error)}"
            ) from error
        finally:
            if overdue is not None:
                overdue.done()

    def _end_overdue(self, what: str, number: int) -> None:
        """End the run because of a rank that did not come; in any thread, as the main one may be blocked."""
        line = None
        if self._channel is not None:
            line = self._channel.ask_who_is_missing(what, number, self._timeout_s)
        # Only rank 0 knows of all others: where it does not answer, one rank of each node says so.
        line = line or f"rank {self.rank} waited for {self._timeout_s:g} s in {what}"
        if self.rank <= 1 or self.local_rank == 0:
            leave.say(f"{leave.ERROR}{line}")
        if self._channel is not None:
            self._channel.run_hooks(line, RunFailed.exit_code)
        self.fail(line, RunFailed.exit_code)
        leave.end_children()
        leave.leave(RunFailed.exit_code)


class _GuardedReducer:
    """A backend's reducer whose errors are those of the other collectives."""

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
    """The first line of an error's text, or its type where there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def deadline(timeout_s: float, line: str) -> Iterator[None]:
    """End the process with exit code 1 and ``line`` on stderr if the block takes longer.

    For native calls that wait for other ranks without an end, before the failure channel exists.
    """

    def end(_: str, number: int) -> None:
        leave.say(f"{leave.ERROR}{line}")
        leave.end_children()
        leave.leave(1)

    overdue = Overdue(timeout_s, end)
    overdue.begin(line)
    try:
        yield
    finally:
        overdue.stop()
