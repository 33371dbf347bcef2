"""Programs of tests use bytecode of this repository that is that of its sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bytecode
import pytest


def test_the_bytecode_is_that_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    cached = source.parent / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"
    run = [sys.executable, "-v", "-c", "import module; print(module.VALUE)"]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for number in (1, 2):
        source.write_text(f"VALUE = {number}\n")
        os.utime(source, (1e9, 1e9))  # another source of the same size and time
        for compiled in (False, True):
            done = subprocess.run(run, cwd=source.parent, env=environ, capture_output=True, text=True, check=True)
            assert done.stdout == f"{number}\n"
            assert (f"code object from {str(cached)!r}" in done.stderr) == compiled
            bytecode.compile_packages([tmp_path])
    made = cached.stat().st_mtime_ns
    bytecode.compile_packages([tmp_path])
    assert cached.stat().st_mtime_ns == made
    (tmp_path / "wrong.py").write_text("no Python")
    bytecode.compile_packages([tmp_path])


def test_nothing_is_compiled_where_the_interpreter_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_text("")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    bytecode.compile_packages([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == ["module.py"]
