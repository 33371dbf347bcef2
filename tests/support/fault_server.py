"""``python fault_server.py``: runs command lines of dlio_torch, each in a process that is forked from this one.

torch is imported once, so a command line costs tenths of a second.  This process is started with ``faults.c``
preloaded, which each child tells what is to go wrong.  A line of JSON on the standard input is a case, a line on the
standard output how it ended; see :mod:`faults` for both.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_PR_SET_CHILD_SUBREAPER = 36
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def case(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a case in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            os.close(reading)
            os.write(writing, json.dumps(_inside(asked)).encode())
            code = 0
        os._exit(code)
    os.close(writing)
    with open(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    result: dict[str, Any] = json.loads(text) if text else {"skip": "the process of the case has ended"}
    return result


def _inside(asked: dict[str, Any]) -> dict[str, Any]:
    _LIBRARY.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become ours, and can be counted
    try:
        _mount(asked.get("mounts", []))
    except OSError as error:
        return {"skip": f"this user cannot mount a file system: {error}"}
    return {"ended": [_command(asked, one, number) for number, one in enumerate(asked["commands"])]}


def _mount(mounts: list[dict[str, Any]]) -> None:
    """Mount small file systems in a namespace of this process."""
    if not mounts:
        return
    user = os.geteuid()
    flags = _CLONE_NEWNS | (_CLONE_NEWUSER if user else 0)
    if _LIBRARY.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {os.getegid()} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if _LIBRARY.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for one in mounts:
        os.makedirs(one["at"], exist_ok=True)
        if _LIBRARY.mount(b"tmpfs", os.fsencode(one["at"]), b"tmpfs", 0, one["options"].encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _command(asked: dict[str, Any], one: dict[str, Any], number: int) -> dict[str, Any]:
    for shell in one.get("before", []):
        subprocess.run(["sh", "-c", shell], check=True, cwd=asked["cwd"], stdout=subprocess.DEVNULL)
    out, err = (f"{asked['output']}/{number}.{name}" for name in ("out", "err"))
    child = os.fork()
    if not child:
        _child(asked["cwd"], one, out, err)
    end, hung = time.monotonic() + one.get("timeout_s", 60.0), False
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end and not hung:
            hung = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return {
        "code": "hung" if hung else os.waitstatus_to_exitcode(ended[1]),
        "out": _text(out),
        "err": _text(err),
        "left": _left(),
    }


def _left() -> list[str]:
    """What the command has left running, after a while to end in; it is killed."""
    end = time.monotonic() + 5.0
    while found := _children():
        if time.monotonic() > end:
            for pid, _ in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return [line for _, line in found]
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.005)
    return []


def _children() -> list[tuple[int, str]]:
    found = []
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        pids = [int(pid) for pid in file.read().split()]
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            found.append((pid, file.read().replace(b"\0", b" ").decode(errors="replace")))
    return found


def _child(cwd: str, one: dict[str, Any], out: str, err: str) -> None:
    code = 1
    try:
        for path, descriptor in ((out, 1), (err, 2)):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.chdir(cwd)
        os.environ.update(one.get("env", {}))
        for name, most in one.get("limits", {}).items():
            kind = getattr(resource, name)
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["dlio_torch", *one["argv"]]
        from dlio_torch import cli

        for line in one.get("patch", []):  # Python that is to be done before
            exec(line, {})
        _LIBRARY.faults_set(one.get("faults", "").encode())
        code = cli.main()
        _end()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _end() -> None:
    """What the end of an interpreter does that matters here."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _LIBRARY.faults_set(b"")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def _import_all() -> None:
    import dlio_torch

    for module in pkgutil.walk_packages(dlio_torch.__path__, "dlio_torch."):
        if module.name not in ("dlio_torch.__main__",):
            with contextlib.suppress(ImportError, RuntimeError):  # a missing package, mpi4py without an MPI
                importlib.import_module(module.name)


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)
    _import_all()
    for line in sys.stdin:
        os.write(answers, json.dumps(case(json.loads(line))).encode() + b"\n")
