"""Calls of the system that go wrong under command lines of dlio_torch: see ``faults.c`` and ``fault_server.py``."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from ranks import clean_environ

_HERE = Path(__file__).parent
BASE = ("recipe=minimal", "scale=tiny", "output.progress=false", "compute=none", "output.dir=run")
"""Words of a small run."""
ROOMY = (
    "import shutil; from dlio_torch.execution import pipeline; pipeline.data_space_problem = lambda *_: None; "
    "shutil.disk_usage = lambda path: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)"
)
"""A patch with which the check of the space passes, as where another program fills the disk after it."""


@dataclass(frozen=True)
class Ended:
    """How a command line ended.

    Attributes:
        code: exit code, negative: the signal that ended it; ``hung``: it did not end in time.
        out: its standard output.
        err: its standard error.
        left: command lines of processes that it left running.
        failed: calls that the rules let go wrong, rule by rule.
        matched: calls that the rules are about, likewise.
    """

    code: int | str
    out: str
    err: str
    left: Sequence[str]
    failed: Sequence[int] = ()
    matched: Sequence[int] = ()

    @property
    def lines(self) -> list[str]:
        """The lines that say what is wrong."""
        return [line for line in self.err.splitlines() if line.startswith("dlio_torch: ")]


def check(ended: Ended, code: int, line: str) -> None:
    """It ended with this code and one line of errors, and left nothing running."""
    assert ended.code == code, ended
    assert all(ended.failed), "the fault was never met"
    assert "Traceback" not in ended.err
    assert "this is a bug" not in ended.err
    assert ended.left == []
    errors = [one for one in ended.lines if "error: " in one]
    assert len(errors) == (code != 0), ended.err
    assert re.search(line, errors[0] if errors else ended.err), ended.err


def rule(calls: str, path: str | Path, what: int | str, first: int = 1, times: int = 0) -> str:
    """A rule of ``faults.c``."""
    return f"{calls}|{path}|{first}|{what}|{times}"


def build(folder: Path) -> Path:
    """The library, compiled; skips where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("faults are injected by a preloaded library, which needs a C compiler")
    library = folder / "faults.so"
    source = _HERE / "faults.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


class FaultServer:
    """Runs command lines, in which calls go wrong.

    Args:
        folder: for the library and what the command lines print.
        environ: more variables of all command lines.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._counts = folder / "counts"
        variables = clean_environ() | dict(environ or {})
        before = variables.get("LD_PRELOAD", "")
        variables |= {"LD_PRELOAD": f"{build(folder)} {before}".strip(), "FAULTS_COUNTS": str(self._counts)}
        variables["FAULTS_FIFO"] = str(folder / "never.fifo")
        os.mkfifo(variables["FAULTS_FIFO"])
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / "fault_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            text=True,
            bufsize=1,
        )

    def run(
        self,
        cwd: Path,
        *argv: str,
        faults: Sequence[str] = (),
        mounts: Sequence[Mapping[str, Any]] = (),
        then: Sequence[Sequence[str]] = (),
        below: bool = False,
        **options: Any,
    ) -> list[Ended]:
        """Run a command line, and others after it.

        Args:
            cwd: working directory.
            argv: of the first command line.
            faults: rules.
            mounts: ``at`` and ``options`` of small tmpfs, which are there for these command lines alone.
            then: further command lines, in which nothing goes wrong.
            below: the rules hold in programs that the command line starts, and not in itself.
            options: ``limits`` (by names of :mod:`resource`), ``env``, ``before`` (lines for the shell),
                ``patch`` (lines of Python), ``timeout_s``.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as output:
            self._counts.write_bytes(bytes(128))
            rules = ";".join(faults)
            first = {"argv": argv, **({"env": {"FAULTS": rules}} if below else {"faults": rules}), **options}
            commands = [first, *({"argv": one} for one in then)]
            asked = {"cwd": str(cwd), "output": output, "mounts": list(mounts), "commands": commands}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline())
        if "skip" in answer:
            pytest.skip(answer["skip"])
        counts = struct.unpack("<16Q", self._counts.read_bytes())[: 2 * len(faults)]
        first_ended, *others = answer["ended"]
        return [Ended(**first_ended, failed=counts[1::2], matched=counts[::2]), *(Ended(**one) for one in others)]

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
