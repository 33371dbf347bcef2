"""One line where a library crashes, see ``native/crash.c``; without a compiler the process ends without a word."""

from __future__ import annotations

import faulthandler

from dlio_torch import native
from dlio_torch.errors import DEBUG_VARIABLE, debugging


def guard_crashes(who: str = "") -> None:
    """Say from now on what was read when a library ended this process by a signal; for debugging, all stacks, too.

    Args:
        who: begins the line, after ``dlio_torch:``.
    """
    if debugging():
        faulthandler.disable()  # one that a fork has inherited is not there any more
        faulthandler.enable(file=2)
    library = native.load_once("crash")
    if library is None:
        return
    way = "" if debugging() else f"; see its stack with {DEBUG_VARIABLE}=1"
    library.dlio_crash_guard(f"dlio_torch: {who}error: ".encode(), way.encode())
