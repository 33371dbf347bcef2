"""``python -m dlio_torch`` in a shell is started by the test process, as :mod:`forked_programs` starts programs.

A folder in front of ``PATH`` holds a command ``python``.  It hands the streams, the folder, the environment and the
arguments of ``python -m dlio_torch`` to the test process, and ends with the exit code of the program.  All other
commands, and those of launchers, run the interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

COMMAND = """#!/bin/sh
read -r parent < /proc/$PPID/comm
[ "$parent $1 $2" = "bash -m dlio_torch" ] || exec {python} "$@"
exec {python} -I -S {hand_over} {address} "$@"
"""
HAND_OVER = """
import json, os, signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
with socket.socket(socket.AF_UNIX) as tests:
    tests.connect(sys.argv[1])
    request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(tests, [len(request).to_bytes(8, "little")], [0, 1, 2])
    tests.sendall(request)
    code = int(tests.recv(16))
sys.exit(code if code >= 0 else 128 - code)
"""


@contextlib.contextmanager
def folder_of_commands(folder: Path, path: str) -> Iterator[Path]:
    """The folder in front of ``PATH`` for the shells of this process.

    Args:
        folder: exists and is empty.
        path: ``PATH`` of the programs.
    """
    address, hand_over = folder / "tests", folder / "hand_over.py"
    hand_over.write_text(HAND_OVER)
    command = folder / "python"
    command.write_text(COMMAND.format(python=sys.executable, hand_over=hand_over, address=address))
    command.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(64)
        threading.Thread(target=_serve, args=(server, path), daemon=True).start()
        try:
            yield folder
        finally:
            server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, path: str) -> None:
    while True:
        try:
            shell, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_run, args=(shell, path), daemon=True).start()


def _run(shell: socket.socket, path: str) -> None:
    """Run one program; it is ended where its command in the shell ends first."""
    with shell:
        size, streams, _, _ = socket.recv_fds(shell, 8, 3)
        request = b""
        while len(request) < int.from_bytes(size, "little"):
            request += shell.recv(1 << 20)
        words, cwd, env = json.loads(request)
        try:
            program = subprocess.Popen(
                [sys.executable, *words], cwd=cwd, env=env | {"PATH": path}, stdin=streams[0], stdout=streams[1],
                stderr=streams[2],
            )  # fmt: skip
        finally:
            for number in streams:
                os.close(number)
        while program.poll() is None:
            if select.select([shell], [], [], 0.02)[0]:
                program.terminate()
                program.wait()
        with contextlib.suppress(OSError):
            shell.sendall(str(program.returncode).encode())
