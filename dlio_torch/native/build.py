"""Compile the package's C files into shared libraries.

Standard library only and no import from the package: the build hook loads this file by its path,
before the package is installed.

A library's file name holds a hash of its sources and flags, so a library that was made from other
sources is never loaded: it is simply not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-fPIC", "-shared", "-pthread", "-fexceptions")
LIBRARIES = ("-ldl",)
COMPILE_TIMEOUT_S = 120


class NoCompilerError(OSError):
    """Error for a machine without a C compiler."""


class CompileError(OSError):
    """Error of the C compiler; the message ends with the compiler's first error line."""


def library_names(source_dir: Path = SOURCE_DIR) -> list[str]:
    """Names of the libraries, one per C file."""
    return sorted(path.stem for path in source_dir.glob("*.c"))


def library_file_name(name: str, source_dir: Path = SOURCE_DIR, machine: str | None = None) -> str:
    """File name of library ``name`` for the current sources.

    Args:
        name: stem of the C file.
        source_dir: where the C files lie.
        machine: type of processor as the system names it, ``aarch64`` for example; None: this one's.

    Raises:
        FileNotFoundError: there is no ``<name>.c``.
    """
    digest = hashlib.sha256(" ".join((*FLAGS, *LIBRARIES)).encode())
    for file, content in sorted(_sources(f"{name}.c", source_dir).items()):
        digest.update(file.encode() + b"\0" + content)
    return f"{name}-{digest.hexdigest()[:16]}-{machine or platform.machine()}.so"


def _sources(name: str, source_dir: Path) -> dict[str, bytes]:
    """Contents of a C file and of the headers that it includes, by their names."""
    contents: dict[str, bytes] = {}
    waiting = [name]
    while waiting:
        file = waiting.pop()
        if file not in contents:
            contents[file] = (source_dir / file).read_bytes()
            waiting += re.findall(r'^#include "([^"]+)"', contents[file].decode(), re.MULTILINE)
    return contents


def find_compiler() -> list[str] | None:
    """Command of the C compiler: ``$CC`` if set, else the first of cc, gcc and clang that exists."""
    configured = shlex.split(os.environ.get("CC", ""))
    if configured:
        return configured if shutil.which(configured[0]) else None
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    return [compiler] if compiler else None


def compile_library(name: str, target: Path, *, source_dir: Path = SOURCE_DIR, sealed: bool = False) -> None:
    """Compile library ``name`` to ``target`` atomically.

    Any number of processes may do this at once: each writes a file of its own and renames it.

    Args:
        name: stem of the C file.
        target: path of the shared library; its folder exists.
        source_dir: where the C files lie.
        sealed: append a checksum (see :func:`is_sealed`).

    Raises:
        NoCompilerError: there is no compiler.
        CompileError: the compiler failed.
        OSError: the folder cannot be written.
    """
    compiler = find_compiler()
    if compiler is None:
        raise NoCompilerError("no C compiler: set CC, or install cc, gcc or clang")
    _remove_old(name, target.parent)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".tmp", dir=target.parent)
    os.close(handle)
    # A tracer that is preloaded into this process tree has nothing to see in the compiler.
    # Empty, not left out: a program that is being recorded would put it back.
    environment = {**os.environ, "LD_PRELOAD": "", "LC_ALL": "C"}
    command = [*compiler, *FLAGS, "-o", temporary, str(source_dir / f"{name}.c"), *LIBRARIES]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_TIMEOUT_S,
            env=environment,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise CompileError(f"{compiler[0]} failed on {name}.c: {lines[0] if lines else f'exit {done.returncode}'}")
        path = Path(temporary)
        if sealed:
            path.write_bytes(_seal(path.read_bytes()))
        path.chmod(0o755)
        path.replace(target)
    except subprocess.SubprocessError as error:
        raise CompileError(f"{compiler[0]} failed on {name}.c: {error}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _remove_old(name: str, folder: Path) -> None:
    """Remove old temporary files of killed compilations; files of running compilations are newer."""
    for path in folder.glob(f".{name}-*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 5 * COMPILE_TIMEOUT_S:
                path.unlink()


def is_sealed(path: Path) -> bool:
    """Whether the file ends with the checksum of the bytes before the checksum.

    The loader of shared libraries ignores what follows the library, but it may crash on one that was
    cut short; a file in a cache is therefore checked before it is loaded.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return len(content) > _SEAL_BYTES and _seal(content[:-_SEAL_BYTES]) == content


_SEAL_BYTES = hashlib.sha256().digest_size


def _seal(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()
