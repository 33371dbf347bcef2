"""Server process that forks trials: the modules that a run needs are already imported, so a trial starts at once.

Run by :class:`~dlio_torch.study.warm_start.WarmStart` as ``python -m dlio_torch.study.warm_server FD``; ``FD`` is its
end of a connection.  The server imports modules and does nothing else, so a trial gets the state of a new process in
which these imports are done, and nothing of an earlier trial.  It forks only while it has a single thread.

It imports torch and pandas when it starts, and after each trial the further modules that this trial imported: later
trials find what runs of this study import, and nothing else.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from importlib.abc import InspectLoader
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from dlio_torch.environment.private_names import join_threads, run_exit_handlers
from dlio_torch.supervision.parent_exit import die_with_parent

_EVERY_RUN = ("torch", "pandas")
# torch imports it in the first step that is measured, where counters of I/O show it in any run.
_NEVER = {"torch.profiler._cupti_monitor"}
_TERMINATED = 128 + signal.SIGTERM
_NAMES_BYTES = 1 << 20
# Arrow's allocator starts a thread when pandas imports pyarrow, and only this variable prevents it.
_ALLOCATOR = "JE_ARROW_MALLOC_CONF"
_NO_THREAD = "background_thread:false"


def serve(study: Connection) -> None:
    """Fork a trial for each request, until the study closes the connection.

    The server sends ``("ready", reason)``, where a reason other than ``""`` says why it cannot fork; a request is
    ``(arguments, log)`` with the arguments of the command line and the path of an existing file for the output.  The
    answers are ``("started", pid)`` and ``("ended", status of wait4, CPU seconds, largest resident set in bytes)``.
    The CPU seconds contain the imports that the trial inherits, as those of any other process contain its own.

    Args:
        study: the server's end.
    """
    given = os.environ.get(_ALLOCATOR)
    os.environ[_ALLOCATOR] = ",".join(filter(None, [given, _NO_THREAD]))
    imports_s = time.process_time() + _import(_EVERY_RUN)
    if given is None:
        del os.environ[_ALLOCATOR]
    else:
        os.environ[_ALLOCATOR] = given
    with contextlib.suppress(EOFError, OSError):
        while True:
            study.send(("ready", _second_thread()))
            arguments, log = study.recv()
            imports_s += _import(_run(study, arguments, log, imports_s))


def _import(names: Iterable[str]) -> float:
    """Import modules; returns the processor time that this took, in seconds."""
    before = time.process_time()
    for name in names:
        with contextlib.suppress(Exception):  # a trial made a module that no file holds
            importlib.import_module(name)
    return time.process_time() - before


def _second_thread() -> str:
    """Names of the threads if there are several; ``""`` if this process has one thread and may fork."""
    # OpenBLAS starts threads when it is imported and ends them before a fork: after this one it has none.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return "" if len(names) == 1 else f"the imports started threads: {', '.join(names)}"


def _run(study: Connection, arguments: list[str], log: str, imports_s: float) -> list[str]:
    """Run one trial to its end; returns the names of modules that it imported.

    Args:
        study: gets the answers.
        arguments: of the trial.
        log: file for its output.
        imports_s: processor time of the imports that the trial inherits.
    """
    names = mmap.mmap(-1, _NAMES_BYTES)  # shared memory and no pipe: the trial gets no descriptor more than usual
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        study.close()
        _become_trial(server, arguments, log, names)
    study.send(("started", pid))
    # Only wait4(2) tells what this one child and its descendants have used.
    _, status, usage = os.wait4(pid, 0)
    study.send(("ended", status, imports_s + usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))
    imported = names[:].rstrip(b"\0").decode()
    names.close()
    return imported.split("\n") if imported else []


def _become_trial(server: int, arguments: list[str], log: str, names: mmap.mmap) -> NoReturn:
    """Turn this process into ``python -m dlio_torch arguments`` after the imports: session, output, argv, seeds."""
    die_with_parent(signal.SIGTERM)  # as the server, whose parent is the study
    if os.getppid() != server:
        os._exit(_TERMINATED)
    os.setsid()
    output = os.open(log, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # Each process seeds its generators by chance; after a fork only Python's own does.
    if (generators := sys.modules.get("numpy.random")) is not None:
        generators.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
    before = set(sys.modules)
    code = _exit_code(arguments)
    text = "\n".join(name for name in sys.modules if name not in before and name not in _NEVER).encode()
    if len(text) <= _NAMES_BYTES:
        names[: len(text)] = text
    # The end of a process that imported torch takes a second, nearly all of it for destructors of modules.
    with contextlib.suppress(Exception):
        join_threads()
        run_exit_handlers()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _exit_code(arguments: list[str]) -> int:
    """Run the program as ``python -m dlio_torch`` does; returns the exit code that Python would end with."""
    spec = importlib.util.find_spec("dlio_torch.__main__")
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader)
    program = importlib.util.module_from_spec(spec)
    program.__name__ = "__main__"
    sys.modules["__main__"] = program
    sys.argv = [str(spec.origin), *arguments]
    sys.orig_argv = [sys.executable, "-m", "dlio_torch", *arguments]
    try:
        code = spec.loader.get_code(spec.name)
        assert code is not None
        exec(code, program.__dict__)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the program's own handlers
        return 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as end:
        serve(end)
    os._exit(0)
