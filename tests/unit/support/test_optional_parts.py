"""Parts of the machine that are hidden from tests are absent from every process, and skips are told by reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import optional_parts
import pytest
from optional_parts import PARTS, chosen, without
from ranks import REPO, SUPPORT, clean_environ
from skipped import skip_lines

LOOK = """
import ctypes, importlib.util, shutil

absent = {name for name in ("horovod", "mpi4py", "tensorflow") if importlib.util.find_spec(name) is None}
if shutil.which("fio") is None:
    absent.add("fio")
try:
    ctypes.CDLL("libsiloh5.so.0")
except OSError:
    absent.add("silo")
print(*absent)
"""


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds something of each part, installed here or not."""
    parts = tmp_path / "parts"
    for name in ("horovod", "mpi4py", "tensorflow"):
        (parts / name).mkdir(parents=True)
        (parts / name / "__init__.py").touch()
    (parts / "fio").write_text("#!/bin/sh\necho fio-9\n")
    (parts / "fio").chmod(0o755)
    (parts / "other").symlink_to(sys.executable)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [compiler, "-shared", "-o", parts / "libsiloh5.so.0", "-x", "c", "/dev/null"]
    subprocess.run(command, check=True, timeout=60)
    environ = clean_environ() | {"LD_LIBRARY_PATH": str(parts)}
    environ["PATH"] = f"{parts}{os.pathsep}{environ['PATH']}"
    environ["PYTHONPATH"] = f"{environ['PYTHONPATH']}{os.pathsep}{parts}"
    return {name: value for name, value in environ.items() if name != optional_parts.HIDDEN}


def absent(environ: dict[str, str]) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOOK], env=environ, check=True, stdout=subprocess.PIPE, text=True)
    return {*done.stdout.split()}


@pytest.mark.parametrize(
    ("names", "hidden"),
    [
        ("", set()),
        ("fio,tensorflow", {"fio", "tensorflow"}),
        ("mpi,silo", {"mpi4py", "silo"}),
        ("all", {"fio", "horovod", "mpi4py", "silo", "tensorflow"}),
    ],
)
def test_hidden_parts_are_absent_and_others_are_there(
    names: str, hidden: set[str], everything: dict[str, str], tmp_path: Path
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    assert absent(without(chosen(names), everything, links)) == hidden


def test_programs_beside_a_hidden_one_stay(everything: dict[str, str], tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    environ = without(["fio"], everything, links)
    found = {name: shutil.which(name, path=environ["PATH"]) for name in ("fio", "other")}
    assert found["fio"] is None
    assert Path(str(found["other"])).resolve() == Path(sys.executable).resolve()


def test_an_unknown_part_is_refused() -> None:
    assert chosen("all") == list(PARTS)
    assert chosen("") == []
    with pytest.raises(ValueError, match="--without fio,mip: 'mip' is none of all, chromium, fio, horovod, mpi, "):
        chosen("fio,mip")


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ([], "2 passed"),
        (["--without", "fio"], "1 passed, 1 skipped"),
        (["--without", "fio", "-n1"], "1 skipped"),
    ],
)
def test_a_run_without_a_part_skips_what_needs_it_and_says_why(
    options: list[str], counts: str, everything: dict[str, str], tmp_path: Path
) -> None:
    test = tmp_path / "test_fio.py"
    test.write_text("import pytest\n@pytest.mark.needs('fio')\ndef test_fio(): pass\ndef test_other(): pass\n")
    everything["PYTHONPATH"] += f"{os.pathsep}{REPO / 'tests'}{os.pathsep}{SUPPORT}"
    command = [sys.executable, "-m", "pytest", "-v", "-p", "conftest", "-p", "no:cacheprovider", *options]
    command += ["-c", str(REPO / "pyproject.toml"), "--rootdir", str(tmp_path), str(test)]
    done = subprocess.run(command, env=everything, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts in done.stdout
    assert ("    1 fio is not installed, or does not start (test_fio.py)" in done.stdout) == bool(options)


def test_skips_are_counted_by_reason() -> None:
    reports = [
        SimpleNamespace(nodeid="tests/test_b.py::test_x", longrepr=("tests/test_b.py", 3, "Skipped: no GPU")),
        SimpleNamespace(nodeid="tests/ranks/test_a.py::test_y", longrepr=("tests/a.py", 9, "Skipped: fio is missing")),
        SimpleNamespace(nodeid="tests/test_a.py::test_x", longrepr=["tests/test_a.py", 3, "Skipped: no GPU"]),
    ]
    assert skip_lines(reports) == ["    2 no GPU (test_a.py, test_b.py)", "    1 fio is missing (test_a.py)"]
    assert skip_lines([]) == []
