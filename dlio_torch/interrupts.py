"""Ctrl-C, SIGTERM and SIGHUP: unwind the main thread once, and end the process with the code that is due.

A signal becomes an exception in the main thread, so that each ``finally`` on the way out removes what must not stay and
writes down what there is.  Others that come meanwhile are left out, so that nothing interrupts that; one that comes
when it has taken longer than :data:`PATIENCE_S` ends the process and its children at once.  A signal that this process
was told to ignore (``nohup``, a job of a shell's background) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from dlio_torch.environment.private_names import run_exit_handlers

PATIENCE_S = 5.0
"""For the clean-up that a first signal began, before a further one cuts it short."""
LEAVING_S = 15.0
"""For exit handlers and threads of a program that was ended by a signal."""


class Ended(KeyboardInterrupt):
    """A signal that ends the process: unwinds like an interrupt, so that the same clean-up runs.

    Attributes:
        exit_code: of the process, 128 and the number of the signal.
        word: what is said.
    """

    exit_code = 128 + signal.SIGINT
    word = "interrupted"


class _Terminated(Ended):
    exit_code = 128 + signal.SIGTERM
    word = "terminated"


class _HungUp(Ended):
    exit_code = 128 + signal.SIGHUP
    word = "the terminal was closed"


_KINDS: dict[int, type[Ended]] = {signal.SIGINT: Ended, signal.SIGTERM: _Terminated, signal.SIGHUP: _HungUp}


def kind_of(interrupt: KeyboardInterrupt) -> type[Ended]:
    """What an interrupt was, also one that Python's own handler has raised."""
    return type(interrupt) if isinstance(interrupt, Ended) else Ended


@contextlib.contextmanager
def raised(*, stays: bool = False) -> Iterator[None]:
    """The signals raise :class:`Ended` in the body; in this process only, and only in its main thread.

    Args:
        stays: where one of them has ended the body they are left out from then on, too: the program is going to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, first = os.getpid(), 0.0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if os.getpid() != owner:
            # A forked worker inherited this handler; it dies as it would have without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        now = time.monotonic()
        if not first:
            first = now
            raise _KINDS[number]
        if now - first > PATIENCE_S:
            _end_at_once(_KINDS[number].exit_code)

    def lost(found: sys.UnraisableHookArgs) -> None:
        """It was raised inside a destructor, which nothing can leave: raise it again elsewhere."""
        nonlocal first
        if not isinstance(found.exc_value, Ended) or os.getpid() != owner:
            others(found)
            return
        first = 0.0
        again = threading.Timer(0.01, os.kill, (owner, found.exc_value.exit_code - 128))
        again.daemon = True
        again.start()

    before = {number: signal.getsignal(number) for number in _KINDS}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN and handler is not None]
    others, sys.unraisablehook = sys.unraisablehook, lost
    for number in ours:
        signal.signal(number, end)
    ended = False
    try:
        yield
    except KeyboardInterrupt:
        ended = True
        raise
    finally:
        sys.unraisablehook = others
        if not (ended and stays):
            for number in ours:
                signal.signal(number, before[number])


def leave_program(exit_code: int) -> NoReturn:
    """End a program that a signal has ended: its exit handlers run, nothing else can be said or change the code.

    Python ends by SIGINT itself where an interrupt came at certain places, and destructors of libraries print what
    they make of an interrupt.
    """
    deadline = threading.Timer(LEAVING_S, _end_at_once, (exit_code,))  # a hanging file system may keep a thread
    deadline.daemon = True
    deadline.start()
    with contextlib.suppress(BaseException):
        run_exit_handlers()
    _end_at_once(exit_code)


def _end_at_once(exit_code: int) -> NoReturn:
    # Imported here: `--help` is to be quick.
    from dlio_torch.dist.leave import end_children, leave

    end_children()
    leave(exit_code)
