"""Starts ``python -m dlio_torch``, and scripts of ranks, by a fork of a server process that has imported torch.

Most of the processor time of a short run is imports of packages.  Here a program that a test starts by
:class:`subprocess.Popen` is a fork of :mod:`fork_server`: a process of its own, a child of the test process, with the
descriptors, folder, environment, limits and arguments that it would have had.

A program starts by itself where its start makes a difference: other interpreters, options of the interpreter, a
preloaded library, variables that packages read when they are imported, a function to be run before ``exec``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import inspect
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fork_server

_PROGRAM = [sys.executable, "-m", "dlio_torch"]
_SCRIPTS = {str(Path(__file__).with_name(name)) for name in ("dcp_program.py", "dist_program.py", "trouble.py")}
"""Scripts of :mod:`ranks` that start as well by a fork; others look at their own start, or at their memory."""
# Variables that the interpreter or a package reads when it starts or is imported.
_EARLY = (
    "PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS", "KMP_", "TORCH_", "PYTORCH_", "CUDA_", "HDF5_", "NUMEXPR", "NPY_",
    "MALLOC_", "GLIBC_", "ARROW_", "ASAN_", "DLIO_TORCH_TEST", "DLIO_TORCH_POSIX",
)  # fmt: skip
_LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_AS,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CORE,
    resource.RLIMIT_STACK,
)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_MOST_SERVERS = 2

_pause = threading.Event()
_owner = os.getpid()
_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_execute)
_servers: dict[tuple[tuple[str, str], ...], _Server] = {}


class _Server:
    """A server process and the connection to it.

    Args:
        env: the environment in which it imports packages.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self.connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # Its long command line makes room for those of programs.
            command = [sys.executable, str(Path(fork_server.__file__)), str(other.fileno()), " " * fork_server.ROOM]
            self.process = subprocess.Popen(command, env=dict(env), pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        if self.connection.recv(16) != b"ready":
            raise RuntimeError("the server of programs ended during its imports")

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a program; returns its process number."""
        prctl = ctypes.CDLL(None).prctl
        reading, writing = os.pipe()
        with open(reading, "rb") as started, self._lock:
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self.connection, [pickle.dumps(request)], [*descriptors, writing])
                pid = int(self.connection.recv(32))
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)
                os.close(writing)
            started.read()
        return pid

    def close(self) -> None:
        self.connection.close()
        self.process.wait()


def install() -> None:
    """Let :class:`subprocess.Popen` of this process start programs by a fork where that makes no difference."""

    def execute(popen: subprocess.Popen[Any], *arguments: Any) -> None:
        given = _signature.bind(popen, *arguments).arguments
        server = _server_for(given)
        if server is None:
            _execute(popen, *arguments)
        else:
            _fork(popen, server, given)

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
    atexit.register(close_servers)


@contextlib.contextmanager
def by_itself() -> Iterator[None]:
    """Programs that this process starts meanwhile start by themselves: their state, or their I/O, is compared."""
    _pause.set()
    try:
        yield
    finally:
        _pause.clear()


def close_servers() -> None:
    """End the server processes; the next program starts one again."""
    for server in _servers.values():
        with contextlib.suppress(OSError):
            server.close()
    _servers.clear()


def _server_for(given: Mapping[str, Any]) -> _Server | None:
    """The server whose packages were imported in the environment of a program; ``None``: it starts by itself."""
    args = given["args"]
    if _pause.is_set() or os.getpid() != _owner:  # a fork of the test process, which shares its connections
        return None
    words = [os.fsdecode(word) for word in args[:3]] if isinstance(args, list | tuple) else []
    plain = words == _PROGRAM or (words[:1] == _PROGRAM[:1] and words[1:2] and words[1] in _SCRIPTS)
    special = [given[name] for name in ("executable", "preexec_fn", "shell", "gid", "gids", "uid")]
    if not plain or any(value not in (None, False) for value in special):
        return None
    if given["umask"] >= 0 or given["process_group"] >= 0 or not given["close_fds"] or not given["restore_signals"]:
        return None
    env = os.environ if given["env"] is None else given["env"]
    early = tuple(sorted((os.fsdecode(name), os.fsdecode(value)) for name, value in env.items() if _is_early(name)))
    if any(name == "LD_PRELOAD" for name, _ in early):
        return None
    if early not in _servers:
        if len(_servers) >= _MOST_SERVERS:
            return None
        _servers[early] = _Server(env)
    return _servers[early]


def _is_early(name: str | bytes) -> bool:
    return os.fsdecode(name).startswith(_EARLY)


def _fork(popen: subprocess.Popen[Any], server: _Server, given: Mapping[str, Any]) -> None:
    """Do what ``Popen._execute_child`` does, by a fork of the server."""
    env = os.environ if given["env"] is None else given["env"]
    streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    numbers = [0, 1, 2, *given["pass_fds"]]
    descriptors = [number if stream == -1 else stream for number, stream in enumerate(streams)] + [*given["pass_fds"]]
    mask = os.umask(0)
    os.umask(mask)
    request = {
        "command": [os.fsdecode(word) for word in given["args"]],
        "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
        "cwd": os.path.abspath(os.fsdecode(given["cwd"] or os.getcwd())),
        "numbers": numbers,
        "new_session": given["start_new_session"],
        "umask": mask,
        "cpus": os.sched_getaffinity(0),
        "limits": {name: resource.getrlimit(name) for name in _LIMITS},
    }
    if not os.path.isdir(request["cwd"]):
        raise FileNotFoundError(request["cwd"])
    popen.pid = server.start(request, descriptors)
    popen._child_created = True  # type: ignore[attr-defined]
    ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    popen._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]
