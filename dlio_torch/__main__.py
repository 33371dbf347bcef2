"""Entry point of ``python -m dlio_torch``.

Before anything else is imported, signals end the process at once in one line: there is nothing yet to be cleaned up.
"""

from __future__ import annotations

import os
import signal
import sys

# Of the launchers (dlio_torch.dist.launcher): the first rank speaks for all.
_RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
_OWNER = os.getpid()


def _end_at_once(number: int, frame: object) -> None:
    if os.getpid() != _OWNER:  # a forked worker dies as usual
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    if all(os.environ.get(name, "0") == "0" for name in _RANKS):
        os.write(2, f"dlio_torch: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def main() -> int:
    """Run the program; returns the exit code, or ends the process if a signal has ended the work."""
    from dlio_torch import cli

    code = cli.main()
    if code in cli.ENDED_BY_SIGNAL:
        from dlio_torch.supervision.signals import exit_program

        exit_program(code)
    return code


for _number in _WORDS:
    if signal.getsignal(_number) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(_number, _end_at_once)

if __name__ == "__main__":
    sys.exit(main())
