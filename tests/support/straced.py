"""The system calls that a program makes on the files of a folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

TRACED = "openat,read,pread64,readv,preadv,preadv2,write,lseek,mmap,close"
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")


def straced(program: str, folder: Path, *args: str) -> dict[str, list[tuple[str, str, int]]]:
    """Run a Python program under strace.

    Args:
        program: its text.
        folder: whose files are of interest; the program runs in it.
        args: of the program.

    Returns:
        For each file, by its path below ``folder``: name, arguments and result of each call, in their order.
        In the arguments ``F`` stands for the file; results of mmap and openat are 0.
    """
    log = folder.parent / f"{folder.name}.strace"
    trace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "0", "-e", f"trace={TRACED}", "-o", str(log)]
    done = subprocess.run(
        [*trace, sys.executable, "-c", program, *args], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    here = str(folder.resolve()) + "/"
    calls: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        found = _CALL.match(line)
        if found is None or here not in line:
            continue
        name, arguments, result = found.groups()
        value = 0 if name in ("openat", "mmap") else int(result)
        path = re.search(re.escape(here) + r'([^">]*)', line)
        assert path is not None
        arguments = re.sub(r"\d+<[^>]*>|\"" + re.escape(here) + r"[^\"]*\"", "F", arguments)
        calls[path[1]].append((name, arguments.replace('""..., ', "").replace('"", ', ""), value))
    return calls


def results(calls: list[tuple[str, str, int]], *names: str) -> list[int]:
    """Results of the calls of these names."""
    return [result for name, _, result in calls if name in names]
