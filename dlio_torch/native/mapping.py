"""One line where a mapped file is cut, see ``mapped.c``; without a compiler SIGBUS ends the process without a word."""

from __future__ import annotations

from dlio_torch import native


def guard_mapped() -> None:
    """Call this where a file is mapped; libraries may have taken the handler away since the last time."""
    library = native.load_once("mapped")
    if library is not None:
        library.dlio_mapped_guard()
