"""SIGINT, SIGTERM and SIGHUP: they raise one exception in the main thread, and set the exit code of the process.

The exception lets every ``finally`` clean up and write what was measured.  Further signals are ignored during the
clean-up; one that comes more than :data:`CLEANUP_S` seconds after the first ends the process and its children at once.
A signal that this process was told to ignore (``nohup``, a background job of a shell) stays ignored.
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

CLEANUP_S = 5.0
"""Seconds that the clean-up after the first signal may take before a further signal ends the process."""
EXIT_HANDLERS_S = 15.0
"""Seconds for the exit handlers and threads of a program that a signal has ended."""


class SignalReceived(KeyboardInterrupt):
    """Exception for SIGINT, and base class for the other signals; unwinds the stack as Python's own interrupt does.

    Attributes:
        exit_code: of the process: 128 plus the number of the signal.
        message: printed on the standard error.
    """

    exit_code = 128 + signal.SIGINT
    message = "interrupted"


class _Terminated(SignalReceived):
    exit_code = 128 + signal.SIGTERM
    message = "terminated"


class _HungUp(SignalReceived):
    exit_code = 128 + signal.SIGHUP
    message = "the terminal was closed"


_KINDS: dict[int, type[SignalReceived]] = {
    signal.SIGINT: SignalReceived,
    signal.SIGTERM: _Terminated,
    signal.SIGHUP: _HungUp,
}


def kind_of(interrupt: KeyboardInterrupt) -> type[SignalReceived]:
    """The class of an interrupt; one that Python's own handler has raised counts as SIGINT."""
    return type(interrupt) if isinstance(interrupt, SignalReceived) else SignalReceived


@contextlib.contextmanager
def raising(*, until_exit: bool = False) -> Iterator[None]:
    """Context manager in which signals raise :class:`SignalReceived`, only in the main thread of this process.

    Args:
        until_exit: after a signal has ended the body, ignore further signals: the program is about to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, first = os.getpid(), 0.0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if os.getpid() != owner:
            # A forked worker inherited this handler; it dies as it would have without it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        now = time.monotonic()
        if not first:
            first = now
            raise _KINDS[number]
        if now - first > CLEANUP_S:
            _end_at_once(_KINDS[number].exit_code)

    def on_unraisable(error: sys.UnraisableHookArgs) -> None:
        """Hook for exceptions that a destructor swallowed: sends a swallowed signal again."""
        nonlocal first
        if not isinstance(error.exc_value, SignalReceived) or os.getpid() != owner:
            previous_hook(error)
            return
        first = 0.0
        resend = threading.Timer(0.01, os.kill, (owner, error.exc_value.exit_code - 128))
        resend.daemon = True
        resend.start()

    before = {number: signal.getsignal(number) for number in _KINDS}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN and handler is not None]
    previous_hook, sys.unraisablehook = sys.unraisablehook, on_unraisable
    for number in handled:
        signal.signal(number, on_signal)
    ended = False
    try:
        yield
    except KeyboardInterrupt:
        ended = True
        raise
    finally:
        sys.unraisablehook = previous_hook
        if not (ended and until_exit):
            for number in handled:
                signal.signal(number, before[number])


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Context manager that delays signals until its body is done.

    An exception while workers are started or ended would lose track of those that run, and
    torch's half-made iterator prints a traceback when it is collected.  A worker that is forked in the body
    ignores SIGINT and SIGHUP, which its trainer handles for it, and dies of SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    pending: list[tuple[int, FrameType | None]] = []
    owner = os.getpid()

    def keep(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            pending.append((number, frame))
        elif number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # An ignored signal (nohup) stays ignored; a handler that Python did not install (None) could not be put back.
    kept = [number for number in _KINDS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, keep) for number in kept}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number, frame in pending:
        handler = before[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)


def exit_program(exit_code: int) -> NoReturn:
    """End a program after a signal: run the exit handlers, then end the process with this code.

    Python itself would end by SIGINT if the interrupt came at certain places, and destructors of libraries print
    tracebacks of an interrupt.
    """
    deadline = threading.Timer(EXIT_HANDLERS_S, _end_at_once, (exit_code,))  # a hung file system may block a thread
    deadline.daemon = True
    deadline.start()
    with contextlib.suppress(BaseException):
        # Imported here: `--help` must be fast.
        from dlio_torch.environment.private_names import run_exit_handlers

        run_exit_handlers()
    _end_at_once(exit_code)


def _end_at_once(exit_code: int) -> NoReturn:
    # Imported here: `--help` must be fast.
    from dlio_torch.supervision.process_exit import end_children, exit_now

    end_children()
    exit_now(exit_code)
