"""Writes the state of a run at its end into the folder ``TRIAL_STATES``, and then changes all of it.

Python imports it at the start of every process that finds it, so a process that forks runs has it, too.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

_LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


def _signal_state() -> dict[str, str]:
    numbers = sorted(signal.valid_signals())
    handlers = {number: signal.getsignal(number) for number in numbers}
    return {str(int(number)): getattr(handler, "__qualname__", str(handler)) for number, handler in handlers.items()}


def _caches() -> dict[str, str]:
    from dlio_torch.config import fields, layers, yamlfile

    return {
        f"{module.__name__}.{name}": str(value.cache_info())
        for module in (fields, layers, yamlfile)
        for name, value in vars(module).items()
        if hasattr(value, "cache_info")
    }


def state() -> dict[str, Any]:
    """What one run could leave to another."""
    import numpy as np
    import torch

    gc.collect()  # objects in cycles hold files until then
    umask = os.umask(0)
    os.umask(umask)
    files = {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name in "012"}
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "variables": dict(sorted(os.environ.items())),
        "handlers": _signal_state(),
        "blocked signals": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "open files": len(os.listdir("/proc/self/fd")),
        "input": files["0"],
        "outputs are one": files["1"] == files["2"],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "torch threads": torch.get_num_threads(),
        "generators": [random.random(), float(np.random.random()), torch.initial_seed()],
        "limits": {name: resource.getrlimit(number) for name, number in _LIMITS.items()},
        "leads": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
        "nice": os.nice(0),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory score": Path("/proc/self/oom_score_adj").read_text(),
        "arguments": [sys.argv[1:], sys.orig_argv[1:]],
        "path": sys.path,
        "warnings": len(warnings.filters),
        "recursion": sys.getrecursionlimit(),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "tracebacks": faulthandler.is_enabled(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "has a parent": multiprocessing.parent_process() is not None,
        "children": len(multiprocessing.active_children()),
        "caches": _caches(),
        "temporary folder": tempfile.tempdir,
        "modules": sorted(sys.modules),
        "main": sys.modules["__main__"].__spec__.name,  # type: ignore[union-attr]
        "output": [sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.errors],
    }


def _change() -> None:
    import numpy as np
    import torch

    from dlio_torch.config import yamlfile

    os.environ["LEFT_BY_A_TRIAL"] = "1"
    os.umask(0o777)
    os.chdir("/")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(2)
    torch.set_num_threads(3)
    torch.ones(1 << 20).sum()
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(5000)
    sys.path.insert(0, "left by a trial")
    gc.disable()
    gc.freeze()
    faulthandler.enable(file=2)
    os.open("/dev/null", os.O_RDONLY)
    os.nice(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    multiprocessing.set_start_method("spawn", force=True)
    tempfile.tempdir = "/left by a trial"
    yamlfile._text.cache_clear()
    threading.Thread(target=threading.Event().wait, daemon=True, name="left by a trial").start()


def _at_end(owner: int) -> None:
    # Not in helpers of the run, which are Python processes, too.
    if "dlio_torch.execution.results" in sys.modules and multiprocessing.parent_process() is None:
        text = json.dumps(state())
        Path(os.environ["TRIAL_STATES"], f"{os.getpid()}.json").write_text(text, encoding="utf-8")
        _change()


if "TRIAL_STATES" in os.environ:
    atexit.register(_at_end, os.getpid())
