"""Parts of a machine that some tests need, and dlio_torch does without: are they there, and hide them.

A test that needs one is marked ``@pytest.mark.needs("fio")`` and skipped where it is absent.  ``pytest --without
fio,mpi`` makes parts absent from the test run and from all processes that it starts; ``--without all`` leaves Python
with its packages, a C compiler and strace.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dlio_torch.errors import MissingPackageError

HIDING = Path(__file__).with_name("hidden") / "sitecustomize.py"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
HIDDEN = "DLIO_TORCH_TEST_HIDDEN"
"""Environment variable: modules and libraries that a process does not find."""


@dataclass(frozen=True)
class Part:
    """A part.

    Attributes:
        problem: says why it cannot be used; ``None`` where it can.
        programs: of it, on ``PATH``.
        hidden: its modules and libraries.
        variables: of the environment that lead to it.
        required: where it is absent tests fail, unless it was hidden or this variable is 1.
    """

    problem: Callable[[], str | None]
    programs: Sequence[str] = ()
    hidden: Sequence[str] = ()
    variables: Sequence[str] = ()
    required: str = ""


def tensorflow_python() -> str | None:
    """A Python that has TensorFlow: this one, or the one that the environment names."""
    named = os.environ.get("DLIO_TORCH_TF_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("tensorflow") is not None else None)


def streaming_python() -> str | None:
    """A Python that has MosaicML Streaming: this one, or the one that the environment names."""
    named = os.environ.get("DLIO_TORCH_STREAMING_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("streaming") is not None else None)


def mpiexec() -> str | None:
    """The mpiexec of the MPI that mpi4py loads here."""
    return os.environ.get("DLIO_TORCH_MPIEXEC") or shutil.which("mpiexec", path=os.path.dirname(sys.executable))


def chromium() -> str | None:
    """The browser that loads pages of reports."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def _no_fio() -> str | None:
    from dlio_torch.storage.local.raw_readers import fio_version

    return None if fio_version() else "fio is not installed, or does not start"


def _no_silo() -> str | None:
    from dlio_torch.formats.silo.library import library

    return _refusal(library)


def _no_horovod() -> str | None:
    from dlio_torch.dist.registry import check_horovod

    return _refusal(check_horovod)


def _no_mpi() -> str | None:
    from dlio_torch.dist.registry import check_mpi4py

    why = _refusal(check_mpi4py)
    if why is None and mpiexec() is None:
        why = "no mpiexec beside this Python (pip install mpich), and DLIO_TORCH_MPIEXEC names none"
    return why


def _no_tensorflow() -> str | None:
    there = tensorflow_python() is not None
    return None if there else "TensorFlow is not installed; DLIO_TORCH_TF_PYTHON names an interpreter that has it"


def _no_streaming() -> str | None:
    there = streaming_python() is not None
    return (
        None
        if there
        else "mosaicml-streaming is not installed; DLIO_TORCH_STREAMING_PYTHON names an interpreter that has it"
    )


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except MissingPackageError as error:
        return str(error)
    return None


def _no_chromium() -> str | None:
    return None if chromium() else "no chromium, chromium-browser or google-chrome is on PATH"


PARTS = {
    "chromium": Part(_no_chromium, programs=CHROMIUM),
    "fio": Part(_no_fio, programs=["fio"]),
    "horovod": Part(_no_horovod, hidden=["horovod"], required="DLIO_TORCH_ALLOW_NO_HOROVOD"),
    "mpi": Part(_no_mpi, hidden=["mpi4py"], variables=["DLIO_TORCH_MPIEXEC"]),
    "streaming": Part(_no_streaming, hidden=["streaming"], variables=["DLIO_TORCH_STREAMING_PYTHON"]),
    "silo": Part(_no_silo, hidden=["libsiloh5"]),
    "tensorflow": Part(_no_tensorflow, hidden=["tensorflow"], variables=["DLIO_TORCH_TF_PYTHON"]),
}


@functools.cache
def problem(name: str) -> str | None:
    """Why a part cannot be used; ``None`` where it can."""
    return PARTS[name].problem()


def need(name: str) -> None:
    """Skip this test where a part is absent; fail where the part is required."""
    why, part = problem(name), PARTS[name]
    if why is None:
        return
    hidden = {*os.environ.get(HIDDEN, "").split()}
    if part.required and os.environ.get(part.required) != "1" and not hidden.intersection(part.hidden):
        pytest.fail(f"{why} ({part.required}=1 skips these tests)")
    pytest.skip(why)


def formats(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: formats, or layouts as ``silo, packed axes``; those that need a part are marked so."""
    return [pytest.param(name, marks=pytest.mark.needs("silo")) if name.startswith("silo") else name for name in names]


def chosen(names: str) -> list[str]:
    """The parts of a list as ``fio,mpi``, or ``all``.

    Raises:
        ValueError: a name is none of them.
    """
    given = list(PARTS) if names == "all" else [name for name in names.split(",") if name]
    unknown = sorted({*given} - {*PARTS})
    if unknown:
        raise ValueError(f"--without {names}: {unknown[0]!r} is none of all, {', '.join(PARTS)}")
    return given


def without(names: Iterable[str], environ: dict[str, str], folder: Path) -> dict[str, str]:
    """The environment of a process that does not find some parts.

    Args:
        names: the parts.
        environ: its environment else.
        folder: takes links to the programs that stay.
    """
    parts = [PARTS[name] for name in names]
    hidden = sorted({*environ.get(HIDDEN, "").split(), *(name for part in parts for name in part.hidden)})
    left_out = {name for part in parts for name in part.variables}
    kept = {name: value for name, value in environ.items() if name not in left_out}
    programs = {name for part in parts for name in part.programs}
    folders = kept.get("PATH", os.defpath).split(os.pathsep)
    kept["PATH"] = os.pathsep.join(_folder_without(programs, one, folder) for one in folders)
    if hidden:
        kept[HIDDEN] = " ".join(hidden)
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HIDING.parent), kept.get("PYTHONPATH", "")]))
    return kept


def _folder_without(programs: set[str], folder: str, links: Path) -> str:
    """A folder of programs, or, where it holds one of ``programs``, a new one of links to all others."""
    if not folder or not any(os.path.lexists(os.path.join(folder, name)) for name in programs):
        return folder
    made = links / f"{len(list(links.iterdir()))}"
    made.mkdir()
    for entry in os.scandir(folder):
        if entry.name not in programs:
            (made / entry.name).symlink_to(os.path.abspath(entry.path))
    return str(made)


def hide(names: Iterable[str], folder: Path) -> None:
    """Hide parts from this process and from those that it starts; see :func:`without`."""
    hidden = without(names, dict(os.environ), folder)
    os.environ.clear()
    os.environ.update(hidden)
    runpy.run_path(str(HIDING))
    problem.cache_clear()
