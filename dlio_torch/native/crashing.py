"""One line where a library crashes, see ``crash.c``; without a compiler the process ends without a word."""

from __future__ import annotations

import faulthandler

from dlio_torch import native
from dlio_torch.errors import debugging


def guard_crashes(who: str = "") -> None:
    """Say from now on what was read when a library ended this process by a signal; for debugging, all stacks, too.

    Args:
        who: begins the line, after ``dlio_torch:``.
    """
    if debugging():
        faulthandler.enable()
    try:
        library = native.load("crash")
    except native.NativeUnavailable:
        return
    library.dlio_crash_guard(f"dlio_torch: {who}error: ".encode())
