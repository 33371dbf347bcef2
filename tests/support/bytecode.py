"""Bytecode of this repository for the programs of tests.

Where Python is told to write no bytecode (``PYTHONDONTWRITEBYTECODE``), each program would compile the 500 modules of
a run again, which takes as long as the run of a tiny recipe.
"""

from __future__ import annotations

import importlib.util
import py_compile
import sys
from collections.abc import Iterable
from pathlib import Path

_CHECKED_HASH = 3
"""Flags of a file of bytecode that is used only where it was compiled from the bytes of the source (PEP 552)."""


def compile_packages(folders: Iterable[Path]) -> None:
    """Compile the modules in folders whose bytecode is absent or not that of their source; nothing is compiled where
    the interpreter writes bytecode itself, or where the folder cannot be written.
    """
    if not sys.dont_write_bytecode:
        return
    for folder in folders:
        for source in folder.rglob("*.py"):
            if not _is_compiled(source):
                try:
                    py_compile.compile(
                        str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
                    )
                except (OSError, py_compile.PyCompileError):  # programs compile it themselves, or say what is wrong
                    continue


def _is_compiled(source: Path) -> bool:
    header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH.to_bytes(4, "little")
    header += importlib.util.source_hash(source.read_bytes())
    try:
        with open(importlib.util.cache_from_source(str(source)), "rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False
