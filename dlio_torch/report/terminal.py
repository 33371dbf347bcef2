"""Writes tables and text to a terminal or another stream."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable
from typing import TextIO

from rich.console import Console

NOT_MEASURED = "not measured"
_GLUE = "\ue000"  # stands for a space where no line may be broken; of Unicode's private use area
_BEFORE_UNIT = re.compile(
    r"(?<=[0-9]) (?=(?:%|[KMGTP]?i?B(?:/s)?|ns|µs|ms|s|min|h|samples/s|samples?|steps?|ranks?|points)(?![A-Za-z]))"
)


def write(stream: TextIO, draw: Callable[[Console], None], columns: int = 100) -> None:
    """Calls ``draw`` with a console and writes its output to a stream.

    On a terminal with colours and its width; elsewhere plain text.

    Args:
        stream: where to.
        columns: of plain text, where the environment's ``COLUMNS`` says nothing else.
        draw: prints to the console that it is given.
    """
    terminal = stream.isatty()
    width = shutil.get_terminal_size().columns if terminal else int(os.environ.get("COLUMNS") or columns)
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=terminal,
        width=max(width, 40),
        no_color=True if "NO_COLOR" in os.environ else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    draw(console)
    lines = [line.rstrip(" ") for line in text.getvalue().replace(_GLUE, " ").splitlines()]
    stream.write(_encodable("\n".join(lines) + "\n", getattr(stream, "encoding", None)))
    stream.flush()


def unbroken(text: str) -> str:
    """``text`` in which no line break falls between a number and its unit; for the output of :func:`write`."""
    return _BEFORE_UNIT.sub(_GLUE, text)


def _encodable(text: str, encoding: str | None) -> str:
    """Replaces characters of ``text`` that a stream of this encoding cannot show."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        plain = text.replace("µ", "u").replace("─", "-").replace("…", "~")
        return plain.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8")
    return text
