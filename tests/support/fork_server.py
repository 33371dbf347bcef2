"""Server process that forks the programs of tests, with torch already imported: ``python -m dlio_torch``, or a script.

Run by :mod:`forked_programs` as a child of the test process.  The server imports packages and nothing of dlio_torch,
so that a program runs its own imports of dlio_torch, and forks only while it has a single thread.

The first process of a fork ends at once: the second becomes a child of the test process, which asks to be the parent
of orphans for that moment.  So the test process waits for the program, and sends signals to it, as to any child.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib
import io
import os
import pickle
import resource
import runpy
import socket
import sys
import types
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "torch.utils.data", "torch.distributed", "torch.profiler", "torchdata.stateful_dataloader",
    "torchdata.nodes", "numpy", "pandas", "h5py", "omegaconf", "psutil", "rich.progress", "rich.table",
)  # fmt: skip
ROOM = 4096
"""Bytes of the command line of the server, whose memory takes the command lines of programs."""


def serve(tests: socket.socket) -> dict[str, Any]:
    """Forks for each request until the test process ends; returns the request in each program.

    Args:
        tests: the server's end of a connection that keeps messages apart.
    """
    for name in PACKAGES:
        with contextlib.suppress(Exception):  # absent, or hidden from the tests
            importlib.import_module(name)
    gc.freeze()  # the memory of the packages stays shared
    tests.send(b"ready")
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(tests, 1 << 20, 64)
        except OSError:
            os._exit(0)
        if not message:
            os._exit(0)
        pid = _fork_orphan()
        if pid == 0:
            tests.close()
            return {**pickle.loads(message), "descriptors": descriptors}
        tests.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_orphan() -> int:
    """Fork a process whose parent has ended; returns 0 there, and its number here when it has its new parent."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
            os._exit(0)
        os.close(reading)
        os.close(writing)
        while os.getppid() == parent:
            os.sched_yield()
        return 0
    os.close(writing)
    os.waitpid(between, 0)
    pid = int(os.read(reading, 32))
    os.close(reading)
    return pid


def become(request: dict[str, Any]) -> None:
    """Take over what the test process gives a program: descriptors, folder, environment, limits, arguments.

    The last descriptor is a pipe on which the test process waits until all of it is done.
    """
    for name, limits in request["limits"].items():
        if resource.getrlimit(name) != limits:
            resource.setrlimit(name, limits)
    os.sched_setaffinity(0, request["cpus"])
    os.umask(request["umask"])
    if request["new_session"]:
        os.setsid()
    *given, started = request["descriptors"]
    started = _place(given, request["numbers"], started)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _show(request["command"])
    sys.orig_argv = request["command"]
    arguments = request["command"][1:]
    is_module = arguments[0] == "-m"
    sys.argv = ["-m", *arguments[2:]] if is_module else arguments
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(arguments[0])
    _open_streams()
    for name in ("numpy.random", "torch"):  # a process seeds its generators by chance; a fork only Python's own
        if name in sys.modules:
            sys.modules[name].seed()
    _skip_destructors()
    os.write(started, b"1")
    os.close(started)


def _skip_destructors() -> None:
    """Let the process end without the C++ destructors of the packages, which write to much of the memory that it
    shares with the server.  The end of the interpreter, and destructors of what the program loads, are as ever.

    ``exit`` calls the last handler first: those of the program, ``fflush``, and ``_exit`` with the exit code.
    """
    library = ctypes.CDLL(None)
    library.on_exit(library._exit, None)
    library.__cxa_atexit(library.fflush, None, None)


def _place(given: list[int], numbers: list[int], kept: int) -> int:
    """Make the descriptors ``given`` have the ``numbers``; nothing else stays open but ``kept``, whose new number is
    returned.
    """
    free = max([*given, *numbers, kept, 2]) + 1
    os.dup2(kept, free, inheritable=False)
    for offset, descriptor in enumerate(given, start=1):
        os.dup2(descriptor, free + offset)
    os.closerange(0, free)
    for offset, number in enumerate(numbers, start=1):
        os.dup2(free + offset, number)
        os.close(free + offset)
    return free


def _show(command: list[str]) -> None:
    """Write the command line to where ``ps`` reads it: the memory of that of the server."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"\0".join(map(os.fsencode, command)) + b"\0"
    if len(text) < end - start:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


def _open_streams() -> None:
    """Open the standard streams as a new interpreter does."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name, mode in (0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"):
        errors = "backslashreplace" if name == "stderr" else "strict"
        buffered = open(number, mode + "b", closefd=False)  # noqa: SIM115 (it stays open)
        lines = name == "stderr" or buffered.isatty()
        stream = io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run_script(path: str) -> None:
    """Run a script as the interpreter does, in a new module ``__main__``."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _end:
        _request = serve(_end)
    become(_request)
    if sys.argv[0] == "-m":
        runpy.run_module("dlio_torch", run_name="__main__", alter_sys=True)
    else:
        run_script(sys.argv[0])
