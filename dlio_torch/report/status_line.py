"""Status of a command that works for seconds: one line that is replaced on a terminal, a line each elsewhere."""

from __future__ import annotations

import contextlib
import shutil
from types import TracebackType
from typing import Self, TextIO

_CLEAR = "\r\x1b[K"


class StatusLine:
    """The present activity on ``stream``; a terminal is clean again at the end of the context.

    Args:
        stream: where to.
        enabled: show anything at all.
    """

    def __init__(self, stream: TextIO, *, enabled: bool = True) -> None:
        self._stream = stream
        self._enabled = enabled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._enabled and self._stream.isatty():
            self._write(_CLEAR)

    def show(self, text: str) -> None:
        """Show what begins now."""
        if not self._enabled:
            return
        if self._stream.isatty():
            self._write(f"{_CLEAR}{text[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the results do not depend on it
            self._stream.write(text)
            self._stream.flush()
