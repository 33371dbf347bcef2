"""Crashes of libraries: ``native/crash.c`` prints one line that names the files that were open.

``faulthandler.enable`` prints the Python stack of a crash and a list of extension modules.  It does not say which data
file the library was reading, which is what a user needs: most crashes come from a damaged file.  For a mapped file
that was truncated it prints ``Bus error`` and the process dies by a signal, where this tool reports damaged data and
exits with code 3.  ``DLIO_TORCH_DEBUG=1`` prints faulthandler's stacks as well.

Without a compiler the process ends without a line of this tool.
"""

from __future__ import annotations

import faulthandler

from dlio_torch import native
from dlio_torch.errors import DEBUG_VARIABLE, debugging


def report_crashes(process: str = "") -> None:
    """From now on, print one line if a fatal signal ends this process, and all stacks when debugging.

    Args:
        process: name of the process, put between ``dlio_torch:`` and ``error:``.
    """
    if debugging():
        faulthandler.disable()  # a fork inherits the flag but not the handlers
        faulthandler.enable(file=2)
    library = native.load_once("crash")
    if library is None:
        return
    advice = "" if debugging() else f"; set {DEBUG_VARIABLE}=1 to print the stack"
    library.dlio_crash_report(f"dlio_torch: {process}error: ".encode(), advice.encode())


def report_truncated_maps() -> None:
    """From now on, print one line and exit with code 3 if a mapped file is truncated; called wherever a file is mapped.

    Libraries may have replaced the handler of SIGBUS since the last call.
    """
    library = native.load_once("crash")
    if library is not None:
        library.dlio_crash_report_truncated_maps()
