"""The failure channel: a rank that fails or dies ends the other ranks, even if a collective blocks them.

Each rank keeps one TCP connection to rank 0 (``rendezvous``) and a daemon thread that reads it.  A rank
blocked in a native collective therefore learns within milliseconds that another rank failed, and
ends with that rank's exit code.  A connection that closes without a goodbye means that the rank died.

All processes end at nearly the same moment, because a launcher kills the others as soon as it sees
the first one end: the others prepare (hooks, child processes) and report ready to rank 0, rank 0
ends, and the end of its connections lets the others end.

torch's own means were tried and do less.  A thread in ``TCPStore.wait`` learns of a failure as fast (0.4 ms), but
not of a rank that dies: on rank 0 the wait goes on until its timeout, and if rank 0 dies, every other rank prints a
C++ stack of twenty lines.  Gloo's error says "Connection closed by peer", without a rank.  Horovod and MPI have
neither, and a rank in one of their collectives waits without an end.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from dlio_torch.dist.base import FailureHook
from dlio_torch.dist.failure.absent_ranks import absent_line
from dlio_torch.dist.failure.rendezvous import Link, Message
from dlio_torch.dist.failure.timeouts import RankProgress
from dlio_torch.dist.launcher import tell_torchrun
from dlio_torch.supervision import process_exit

_HOOKS_S = 1.0  # for all hooks of a rank that another rank's failure ends
_READY_S = 2.0  # until the others are ready to end, and until rank 0 has ended
_CLOSE_S = 1.0  # until the others have answered a goodbye
_DEADLINE_S = 5.0  # between a rank's own fail() and its end
_ANSWER_S = 2.0  # for a rank to report its progress


class FailureChannel:
    """A rank's end of the failure channel.

    Args:
        rank: this rank.
        links: its connections; the channel closes them.
        prepare: ends child processes; called before this rank reports ready to end.
        end: ends the process with an exit code; does not return.
        ensure_exit: makes sure that the process ends with an exit code, within so many seconds.
        progress: reports the progress of this rank, for the others.

    Attributes:
        hooks: called as ``hook(line, exit_code)`` when another rank failed, before this one ends.
    """

    def __init__(
        self,
        rank: int,
        links: list[Link],
        *,
        prepare: Callable[[], object] = process_exit.end_children,
        end: Callable[[int], object] = process_exit.exit_now,
        ensure_exit: Callable[[int, float], object] = process_exit.ensure_exit,
        progress: Callable[[], RankProgress] | None = None,
    ) -> None:
        self.hooks: list[FailureHook] = []
        self._rank = rank
        self._prepare = prepare
        self._end = end
        self._ensure_exit = ensure_exit
        self._progress = progress
        self._answers: dict[int, RankProgress] = {}
        self._asking = False
        self._pid = os.getpid()
        self._links = {link.rank: link for link in links}
        self._state: Literal["open", "failing", "ending", "closed"] = "open"
        self._changed = threading.Condition()
        _close_after_fork(self)
        self._reader = threading.Thread(target=self._read, name="dlio_torch-failure-channel", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        """Whether no rank has announced its end."""
        return self._state == "open"

    def fail(self, message: str, exit_code: int) -> None:
        """Tell the other ranks that this rank ends; see ``Communicator.fail``."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._state == "ending":  # another rank was first; its exit code counts
                self._changed.wait_for(lambda: False, _DEADLINE_S)
            if self._state != "open":
                return
            self._state = "failing"
            links = list(self._links.values())
        line = " ".join(f"rank {self._rank} failed: {message}".split())
        for link in links:
            link.send(type="fail", rank=self._rank, line=line, exit_code=exit_code)
        self._ensure_exit(exit_code, _DEADLINE_S)
        self._wait_until(self._others_ready)

    def close(self) -> None:
        """Announce a planned end, after which no rank takes the end of another rank for a failure."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._state != "open":
                return
            self._state = "closed"
            links = list(self._links.values())
        for link in links:
            link.goodbye()
        self._wait_until(lambda: not self._links, _CLOSE_S)
        with self._changed:
            for link in self._links.values():  # no answer: the reader finds the end of the connection
                _shut(link.sock)
        self._reader.join(_CLOSE_S)

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait for a message that explains an error of this rank; does not return if another rank failed."""
        self._wait_until(lambda: self._state == "ending", timeout_s)
        if self._state == "ending":
            threading.Event().wait(2 * _DEADLINE_S)

    def end_for_absent_rank(self, collective: str, number: int, timeout_s: float) -> str | None:
        """Find the ranks that did not come to an overdue collective, and end the run with a line that names them.

        Rank 0 asks all ranks for their progress; another rank has rank 0 do so.

        Args:
            collective: its name.
            number: collectives that this rank has begun.
            timeout_s: seconds that it has waited, for the line.

        Returns:
            If the run does not end by it: ``None``, or the line if rank 0 does not answer.
        """
        with self._changed:
            links = list(self._links.values())
        if self._rank == 0:
            self._ask_all(collective, number, timeout_s)
        else:
            for link in links:
                link.send(type="overdue", collective=collective, number=number, timeout_s=timeout_s)
        self.wait_for_end(2 * _ANSWER_S)
        if self._rank == 0 or not links or self._state != "open":
            return None
        return absent_line({0: _name(links[0])}, {}, collective, number, timeout_s)[1]

    def run_hooks(self, line: str, exit_code: int) -> None:
        """Run the failure hooks; each gets an equal share of one second."""
        for hook in self.hooks:
            process_exit.run_bounded(lambda hook=hook: hook(line, exit_code), _HOOKS_S / len(self.hooks))  # type: ignore[misc]

    def _ask_all(self, collective: str, number: int, timeout_s: float) -> None:
        with self._changed:
            if self._asking:
                return
            self._asking = True
            links = list(self._links.values())
        for link in links:
            link.send(type="ask")
        self._wait_until(lambda: all(link.rank in self._answers for link in links), _ANSWER_S)
        with self._changed:
            answers = dict(self._answers)
        names = {0: f"rank 0 (pid {self._pid}, host {socket.gethostname()})"}
        if self._progress is not None:
            answers[0] = self._progress()
        names |= {link.rank: _name(link) for link in links}
        rank, line = absent_line(names, answers, collective, number, timeout_s)
        self._other_failed(rank, line, 1, reported=False)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float = _READY_S) -> None:
        with self._changed:
            self._changed.wait_for(condition, timeout_s)

    def _others_ready(self) -> bool:
        """Whether the other ranks are ready to end: on rank 0 all others, on other ranks rank 0."""
        return all(link.ready or link.ending for link in self._links.values())

    def _read(self) -> None:
        with selectors.PollSelector() as selector:
            for link in self._links.values():
                selector.register(link.sock, selectors.EVENT_READ, link)
            while selector.get_map():
                for key, _ in selector.select():
                    link = key.data
                    messages, connected = link.receive()
                    for message in messages:
                        self._handle(link, message)
                    if not connected:
                        selector.unregister(link.sock)
                        self._lose(link)

    def _handle(self, link: Link, message: Message) -> None:
        kind = message["type"]
        with self._changed:
            link.ready = link.ready or kind == "ready"
            link.ending = link.ending or kind in ("bye", "fail")
            if kind == "progress":
                self._answers[link.rank] = message["progress"]
            self._changed.notify_all()
        if kind == "ask" and self._progress is not None:
            link.send(type="progress", progress=self._progress())
        if kind == "overdue":  # in a thread of its own, because this one has to read the answers
            overdue = (message["collective"], message["number"], message["timeout_s"])
            threading.Thread(target=self._ask_all, args=overdue, daemon=True).start()
        if kind == "fail":
            self._other_failed(message["rank"], message["line"], message["exit_code"], reported=True)

    def _lose(self, link: Link) -> None:
        with self._changed:
            del self._links[link.rank]
            link.sock.close()
            self._changed.notify_all()
        if not link.ending and not link.ready:
            self._other_failed(link.rank, f"{_name(link)} died", 1, reported=False)

    def _other_failed(self, rank: int, line: str, exit_code: int, *, reported: bool) -> None:
        with self._changed:
            if self._state != "open":
                return
            self._state = "ending"
        # In a thread of its own, because this one has to go on reading.
        threading.Thread(target=self._end_process, args=(rank, line, exit_code, reported), daemon=True).start()

    def _end_process(self, rank: int, line: str, exit_code: int, reported: bool) -> None:
        with self._changed:
            links = list(self._links.values())
        if self._rank == 0:
            for link in links:
                if link.rank != rank or not reported:  # a rank that is stopped reads it when it goes on
                    link.send(type="fail", rank=rank, line=line, exit_code=exit_code)
        tell_torchrun(f"{process_exit.ERROR_PREFIX}{line}")
        # One line for the whole run: rank 0 prints it, or rank 1 if rank 0 has died.
        if self._rank == 0 or (self._rank == 1 and rank == 0 and not reported):
            process_exit.print_line(f"{process_exit.ERROR_PREFIX}{line}")
        self.run_hooks(line, exit_code)
        self._prepare()
        if self._rank != 0:
            for link in links:
                link.send(type="ready")
            self._wait_until(lambda: not self._links)
        else:
            self._wait_until(self._others_ready)
        self._end(exit_code)


def _close_after_fork(channel: FailureChannel) -> None:
    """Close the sockets in forked children, so that the connections end when this process ends.

    Python's sockets are not inherited over exec, so other start methods need nothing.
    """
    # os.register_at_fork cannot be undone: it must not keep the channel alive.
    reference = weakref.ref(channel)

    def in_child() -> None:
        inherited = reference()
        if inherited is not None:
            for link in inherited._links.values():
                link.sock.close()

    os.register_at_fork(after_in_child=in_child)


def _name(link: Link) -> str:
    return f"rank {link.rank} (pid {link.pid}, host {link.host})"


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
