"""Lines of the command line's texts: wrapped to the width of the output, with whole names."""

from __future__ import annotations

import os
import sys

import pytest

from dlio_torch.commands.text_width import output_width, wrap

LONG = "one two three four five six"


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short", ["short"]),
        (f"name: {LONG}", ["name: one two three", "    four five six"]),
        (f"  {LONG}", ["  one two three four", "  five six"]),
        (f"  ab    {LONG}", ["  ab    one two", "        three four", "        five six"]),
        (f"  a.long.name  {LONG}", ["  a.long.name", "      one two three", "      four five six"]),
        ("see a-very.long-name_that.is.whole", ["see", "    a-very.long-name_that.is.whole"]),
    ],
)
def test_a_line_is_wrapped_below_its_text(line: str, lines: list[str]) -> None:
    assert wrap(line, 20).split("\n") == [*lines, ""]


@pytest.mark.parametrize(("columns", "width"), [(60, 60), (20, 40), (200, 100)])
def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert output_width() == 100  # no terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert output_width() == width
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    assert output_width() == width
