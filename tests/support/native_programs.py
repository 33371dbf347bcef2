"""C programs that are built with the package's C files, or skipped tests where the compiler cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlio_torch.native.build import SOURCE_DIR, find_compiler


def compiled(source: Path, target: Path, *flags: str) -> Path:
    """Path of the program that a C file makes, with the package's headers; skips without the compiler or a flag."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("needs a C compiler")
    common = ["-std=gnu11", "-g", "-O1", "-pthread", "-I", str(SOURCE_DIR)]
    empty = target.with_suffix(".probe.c")
    empty.write_text("int main(void) { return 0; }\n")
    probe = [*compiler, *common, *flags, "-o", str(target), str(empty)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip(f"the C compiler does not link with {' '.join(flags)}")
    command = [*compiler, *common, *flags, "-o", str(target), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
