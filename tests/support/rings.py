"""Tests of io_uring: whether this machine permits it, and processes that are refused it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ranks import clean_environ

from dlio_torch.native.uring import uring_refusal

REFUSAL = uring_refusal(8)
needs_uring = pytest.mark.skipif(REFUSAL is not None, reason=f"io_uring cannot be used here: {REFUSAL}")

_FILTER = """
import ctypes, struct, sys
number, refusal = 425, int(sys.argv.pop(1))  # io_uring_setup, which has this number on all machines
instructions = [
    (0x20, 0, 0, 0),                      # load the number of the system call
    (0x15, 0, 1, number),                 # another one: skip the next
    (0x06, 0, 0, 0x00050000 | refusal),   # fail with this errno
    (0x06, 0, 0, 0x7FFF0000),             # allow
]
code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
buffer = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(instructions), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
if libc.prctl(38, 1, None, 0, 0) or libc.prctl(22, 2, ctypes.addressof(program), 0, 0):
    print("no seccomp filter")
    sys.exit(77)
"""


def without_uring(number: int, program: str, arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a process whose seccomp filter refuses io_uring; skips the test without filters.

    Args:
        number: errno that ``io_uring_setup`` fails with.
        program: Python source.
        arguments: of the program.
        cwd: folder in which it runs.
    """
    command = [sys.executable, "-c", _FILTER + program, str(number), *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=clean_environ(), capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode == 77 and "no seccomp filter" in done.stdout:
        pytest.skip("this system permits no seccomp filters")
    return done
