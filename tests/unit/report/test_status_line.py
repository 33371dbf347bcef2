"""The status line: replaced on a terminal, a line each elsewhere, nothing where it is disabled."""

from __future__ import annotations

import contextlib
import io

import pytest

from dlio_torch.report.status_line import StatusLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_line_and_is_clean_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    with contextlib.suppress(KeyboardInterrupt), StatusLine(stream) as status:
        status.show("first")
        status.show("second that is long")
        raise KeyboardInterrupt
    assert stream.getvalue() == "\r\x1b[Kfirst\r\x1b[Ksecond th\r\x1b[K"


def test_another_stream_gets_a_line_each() -> None:
    stream = io.StringIO()
    with StatusLine(stream) as status:
        status.show("first")
        status.show("second")
    assert stream.getvalue() == "first\nsecond\n"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_disabled_one_writes_nothing(stream: io.StringIO) -> None:
    with StatusLine(stream, enabled=False) as status:
        status.show("first")
    assert stream.getvalue() == ""


def test_a_stream_that_takes_nothing_is_no_error() -> None:
    stream = Terminal()
    with StatusLine(stream) as status:
        stream.write = lambda _: (_ for _ in ()).throw(OSError("closed"))  # type: ignore[method-assign]
        status.show("first")
