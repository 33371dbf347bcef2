"""The failure channel: a rank that fails or dies ends the others, whatever they are waiting for.

Each rank keeps one TCP connection to rank 0 (``meet``) and a daemon thread that reads it.  A rank
blocked in a native collective therefore still learns within milliseconds that another one failed, and
ends with that rank's exit code.  A connection that ends without a goodbye means a rank that died.

The order of an end is chosen so that all processes leave at nearly the same moment, because a launcher
kills what is left as soon as it sees the first one end: the others prepare (hooks, child processes)
and report ready to rank 0, rank 0 leaves, and the end of its connections lets everyone else leave.
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

from dlio_torch.dist import leave
from dlio_torch.dist.base import FailureHook
from dlio_torch.dist.launcher import tell_torchrun
from dlio_torch.dist.meet import Link, Message
from dlio_torch.dist.missing import who_is_missing
from dlio_torch.dist.overdue import Where

_HOOKS_S = 1.0  # for the hooks of a rank that another one's failure ends
_READY_S = 2.0  # until the others are ready to leave, and until rank 0 has left
_CLOSE_S = 1.0  # until the others have answered a goodbye
_DEADLINE_S = 5.0  # between a rank's own fail() and its end
_ANSWER_S = 2.0  # for a rank to say where it is


class FailureChannel:
    """A rank's end of the failure channel.

    Args:
        rank: this rank.
        links: its connections; the channel closes them.
        prepare: ends child processes; called before this rank reports ready to leave.
        end: ends the process with an exit code; does not return.
        end_at_exit: makes sure that the process ends with this code within so many seconds.
        where: says where this rank is, for the others.

    Attributes:
        hooks: called as ``hook(line, exit_code)`` when another rank failed, before this one ends.
    """

    def __init__(
        self,
        rank: int,
        links: list[Link],
        *,
        prepare: Callable[[], object] = leave.end_children,
        end: Callable[[int], object] = leave.leave,
        end_at_exit: Callable[[int, float], object] = leave.leave_at_exit,
        where: Callable[[], Where] | None = None,
    ) -> None:
        self.hooks: list[FailureHook] = []
        self._rank = rank
        self._prepare = prepare
        self._end = end
        self._end_at_exit = end_at_exit
        self._where = where
        self._answers: dict[int, Where] = {}
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
        """Whether neither this rank nor another one has said that it ends."""
        return self._state == "open"

    def fail(self, message: str, exit_code: int) -> None:
        """Tell the others that this rank ends; see ``Communicator.fail``."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._state == "ending":  # another rank was first, its exit code counts
                self._changed.wait_for(lambda: False, _DEADLINE_S)
            if self._state != "open":
                return
            self._state = "failing"
            links = list(self._links.values())
        line = " ".join(f"rank {self._rank} failed: {message}".split())
        for link in links:
            link.send(type="fail", rank=self._rank, line=line, exit_code=exit_code)
        self._end_at_exit(exit_code, _DEADLINE_S)
        self._wait_until(self._others_ready)

    def close(self) -> None:
        """Say goodbye; afterwards neither side takes the end of the other for a failure."""
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
        """Give the channel time to explain an error: does not return where another rank failed."""
        self._wait_until(lambda: self._state == "ending", timeout_s)
        if self._state == "ending":
            threading.Event().wait(2 * _DEADLINE_S)

    def ask_who_is_missing(self, what: str, number: int, timeout_s: float) -> str | None:
        """Find out which rank did not come to an overdue collective, and end the run with a line that names it.

        Rank 0 asks all others where they are; another rank leaves that to rank 0.

        Args:
            what: the collective.
            number: how many collectives this rank has begun.
            timeout_s: how long it has waited, for the line.

        Returns:
            Where the run does not end by it: ``None``, or the line, if it is rank 0 that does not answer.
        """
        with self._changed:
            links = list(self._links.values())
        if self._rank == 0:
            self._ask_all(what, number, timeout_s)
        else:
            for link in links:
                link.send(type="overdue", what=what, number=number, timeout_s=timeout_s)
        self.wait_for_end(2 * _ANSWER_S)
        if self._rank == 0 or not links or self._state != "open":
            return None
        return who_is_missing({0: _name(links[0])}, {}, what, number, timeout_s)[1]

    def run_hooks(self, line: str, exit_code: int) -> None:
        """Run the hooks, each in its share of a second."""
        for hook in self.hooks:
            leave.bounded(lambda hook=hook: hook(line, exit_code), _HOOKS_S / len(self.hooks))  # type: ignore[misc]

    def _ask_all(self, what: str, number: int, timeout_s: float) -> None:
        with self._changed:
            if self._asking:
                return
            self._asking = True
            links = list(self._links.values())
        for link in links:
            link.send(type="where")
        self._wait_until(lambda: all(link.rank in self._answers for link in links), _ANSWER_S)
        with self._changed:
            answers = dict(self._answers)
        names = {0: f"rank 0 (pid {self._pid}, host {socket.gethostname()})"}
        if self._where is not None:
            answers[0] = self._where()
        rank, line = who_is_missing(
            names | {link.rank: _name(link) for link in links}, answers, what, number, timeout_s
        )
        self._other_failed(rank, line, 1, told=False)

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float = _READY_S) -> None:
        with self._changed:
            self._changed.wait_for(condition, timeout_s)

    def _others_ready(self) -> bool:
        """On rank 0: all others may be left; elsewhere: rank 0 has left or is leaving."""
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
                        self._take(link, message)
                    if not connected:
                        selector.unregister(link.sock)
                        self._lose(link)

    def _take(self, link: Link, message: Message) -> None:
        kind = message["type"]
        with self._changed:
            link.ready = link.ready or kind == "ready"
            link.ending = link.ending or kind in ("bye", "fail")
            if kind == "here":
                self._answers[link.rank] = message["where"]
            self._changed.notify_all()
        if kind == "where" and self._where is not None:
            link.send(type="here", where=self._where())
        if kind == "overdue":  # in a thread of its own, because the reader has to read the answers
            asked = (message["what"], message["number"], message["timeout_s"])
            threading.Thread(target=self._ask_all, args=asked, daemon=True).start()
        if kind == "fail":
            self._other_failed(message["rank"], message["line"], message["exit_code"], told=True)

    def _lose(self, link: Link) -> None:
        with self._changed:
            del self._links[link.rank]
            link.sock.close()
            self._changed.notify_all()
        if not link.ending and not link.ready:
            self._other_failed(link.rank, f"{_name(link)} died", 1, told=False)

    def _other_failed(self, rank: int, line: str, exit_code: int, *, told: bool) -> None:
        with self._changed:
            if self._state != "open":
                return
            self._state = "ending"
        # In a thread of its own, because the reader has to go on reading.
        threading.Thread(target=self._leave, args=(rank, line, exit_code, told), daemon=True).start()

    def _leave(self, rank: int, line: str, exit_code: int, told: bool) -> None:
        with self._changed:
            links = list(self._links.values())
        if self._rank == 0:
            for link in links:
                if link.rank != rank or not told:  # a rank that is stopped learns of it when it goes on
                    link.send(type="fail", rank=rank, line=line, exit_code=exit_code)
        tell_torchrun(f"{leave.ERROR}{line}")
        # One line for the whole run: rank 0 prints it, or rank 1 where rank 0 has died without a word.
        if self._rank == 0 or (self._rank == 1 and rank == 0 and not told):
            leave.say(f"{leave.ERROR}{line}")
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
    """Close the sockets in forked children: the connection must end when this process ends.

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
