"""``python trouble.py ARGUMENTS``: the command line, in which one rank gets into trouble.

``TROUBLE=<rank>:<place>:<what>`` says which rank, where (in the middle of a ``step``, of ``generate``, of a
``checkpoint``, before the ``results``) and what: ``kill`` and ``stop`` are signals to itself, ``full`` means that it
can write nothing beyond 1,500 bytes of a file (``full=<bytes>``) any more, ``cut=DEVICE`` takes its network away.
Where it is ``stop`` or ``cut``, ranks that go on wait ``PATIENCE_S`` for the others from that place on.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

FULL_BYTES = 1500
PATIENCE_S = 3.0


def act(what: str) -> None:
    name, _, value = what.partition("=")
    if name in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if name == "kill" else signal.SIGSTOP)
    elif name == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(value or FULL_BYTES), resource.RLIM_INFINITY))
    elif name == "cut":
        subprocess.run(["ip", "link", "set", value, "down"], check=True)


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
    watchdog = comm._timeout._watchdog
    watchdog.settings = replace(watchdog.settings, limit_s=PATIENCE_S)
    comm._timeout_s = PATIENCE_S


def prepare(place: str, do: Callable[[], None]) -> None:
    from dlio_torch.checkpoint.layouts.plain_files import checkpoint_writer
    from dlio_torch.data.dataset import generation
    from dlio_torch.execution import summary
    from dlio_torch.train import trainer

    places: dict[str, tuple[Any, str, int]] = {
        "step": (trainer.Trainer, "_record", 3),
        "generate": (generation, "_write", 2),
        "checkpoint": (checkpoint_writer.os, "write", 2),  # between two write calls of a file
        "results": (summary, "write_results", 1),
    }
    if place == "checkpoint":  # and not those of the journal of steps
        before(checkpoint_writer.CheckpointWriter, "_write_calls", 1, lambda: before(*places[place], do))
    else:
        before(*places[place], do)


if __name__ == "__main__":
    rank = os.environ.get("RANK", os.environ.get("HOROVOD_RANK", "0"))
    whose, place, what = os.environ["TROUBLE"].split(":", 2)
    known: list[Any] = []
    if what.startswith(("stop", "cut")):
        from dlio_torch.execution import pipeline

        before(pipeline, "check_ranks_agree", 1, lambda: None, known)
    if whose == rank:
        prepare(place, lambda: act(what))
    if what.startswith("cut" if whose == rank else ("stop", "cut")):
        prepare(place, lambda: shorten(known[1]))
    from dlio_torch.cli import main

    sys.exit(main())
