"""``python trouble.py ARGUMENTS``: the command line, in which one rank gets into trouble.

``TROUBLE=<rank>:<place>:<what>`` says which rank, where (``step``, ``generate``, ``checkpoint``, ``results``: in the
middle of it; ``start``) and what: ``kill`` and ``stop`` are signals to itself, ``full`` means that it can write nothing
beyond 1,500 bytes of a file any more, ``cd=DIR`` is another working directory, ``version=V`` another version,
``args=A`` are further arguments.  Where it is ``stop``, the other ranks wait ``PATIENCE_S`` for it from that place on.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

FULL_BYTES = 1500
PATIENCE_S = 3.0


def act(what: str) -> None:
    name, _, value = what.partition("=")
    if name in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if name == "kill" else signal.SIGSTOP)
    elif name == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, resource.RLIM_INFINITY))
    elif name == "cd":
        os.chdir(value)
    elif name == "args":
        sys.argv += value.split()
    else:
        import dlio_torch

        assert name == "version"
        dlio_torch.__version__ = value


def before(owner: Any, name: str, call: int, do: Callable[[], None], seen: list[Any] | None = None) -> None:
    """Do something before the given call of a function, whose arguments are put into ``seen``."""
    function, calls = getattr(owner, name), iter(range(1, sys.maxsize))

    def replacement(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            if seen is not None:
                seen.extend(arguments)
            do()
        return function(*arguments, **options)

    setattr(owner, name, replacement)


def shorten(comm: Any) -> None:
    """Let the next collective be overdue early; no other comes first."""
    comm._timeout_s = comm._overdue._timeout_s = PATIENCE_S


def prepare(place: str, do: Callable[[], None]) -> None:
    if place == "start":
        do()
        return
    from dlio_torch.data import generate
    from dlio_torch.run import outcome
    from dlio_torch.train import checkpoint, trainer

    places: dict[str, tuple[Any, str, int]] = {
        "step": (trainer.Trainer, "_record", 3),
        "generate": (generate, "_write", 2),
        "checkpoint": (checkpoint.os, "write", 2),  # between two write calls of a file
        "results": (outcome, "write_results", 1),
    }
    if place == "checkpoint":  # and not those of the journal of steps
        before(checkpoint.Checkpointer, "_write_calls", 1, lambda: before(*places[place], do))
    else:
        before(*places[place], do)


if __name__ == "__main__":
    rank = os.environ.get("RANK", os.environ.get("HOROVOD_RANK", "0"))
    whose, place, what = os.environ["TROUBLE"].split(":", 2)
    if whose == rank:
        prepare(place, lambda: act(what))
    elif what == "stop":
        from dlio_torch import run

        known: list[Any] = []
        before(run, "same_on_all", 1, lambda: None, known)
        prepare(place, lambda: shorten(known[1]))
    from dlio_torch.cli import main

    sys.exit(main())
