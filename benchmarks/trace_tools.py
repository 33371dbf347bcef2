"""Tools that record the I/O calls of a program, compared by :mod:`benchmarks.trace_cost`."""

from __future__ import annotations

import ctypes.util
import gzip
import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlio_torch.iotrace.events.call_names import CLASSES, READ, class_codes
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder import preload

FILE_CALLS = "open,openat,read,pread64,readv,preadv,preadv2,write,pwrite64,writev,lseek,mmap,fsync,close"
BARE = "none"


@dataclass(frozen=True)
class Tool:
    """A tool that records a program.

    Args:
        name: in the tables.
        command: words before the program's, given the folder for what is recorded.
        variables: to add to the environment, given that folder and that of the data.
        reads: how many reads of the data it recorded, given both folders; None: cannot be told here.
        slow: takes microseconds per call, so that fewer calls do.
    """

    name: str
    command: Callable[[Path], list[str]] = lambda folder: []
    variables: Callable[[Path, Path], Mapping[str, str]] = lambda folder, data: {}
    reads: Callable[[Path, Path], int | None] = lambda folder, data: None
    slow: bool = False


def find_tools(dftracer: Path | None, darshan: Path | None) -> tuple[list[Tool], dict[str, str]]:
    """The available tools, the unrecorded run first, and for the others how to install them."""
    tools = [
        Tool(BARE),
        Tool(
            "dlio_torch",
            variables=lambda folder, data: preload.environment(folder, include=[str(data)]),
            reads=lambda folder, data: _reads_of_table(folder),
        ),
    ]
    missing = {}
    if shutil.which("strace"):
        words = ["strace", "-f", "--seccomp-bpf", "-y", "-ttt", "-T", "-s", "0", "-e", f"trace={FILE_CALLS}"]
        tools.append(
            Tool(
                "strace",
                command=lambda folder: [*words, "-o", str(folder / "log")],
                reads=lambda folder, data: _matching_lines(folder, rf"(read|pread64|p?readv2?)\(\d+<{data}/"),
                slow=True,
            )
        )
    else:
        missing["strace"] = "apt install strace"
    library = darshan or _found(ctypes.util.find_library("darshan"))
    if library:
        tools.append(Tool("Darshan DXT", variables=lambda folder, data: _darshan(library, folder)))
    else:
        missing["Darshan DXT"] = (
            "build darshan-runtime (./configure --without-mpi) from its source, which pip and Debian do not have, "
            "and give --darshan /path/to/libdarshan.so"
        )
    preloaded = dftracer or _dftracer_library()
    if preloaded:
        tools.append(
            Tool(
                "DFTracer",
                variables=lambda folder, data: _dftracer(preloaded, folder, data),
                reads=lambda folder, data: _matching_lines(folder, r'"name":"(read|pread|pread64|p?readv(64)?|fread)"'),
                slow=True,
            )
        )
    else:
        missing["DFTracer"] = (
            "pip install dftracer, into an environment of its own with --dftracer "
            "…/site-packages/dftracer/lib64/libdftracer_preload.so"
        )
    return tools, missing


def _reads_of_table(folder: Path) -> int:
    codes = class_codes(read_events(folder).frame)
    return int(np.count_nonzero(codes == CLASSES.index(READ)))


def _matching_lines(folder: Path, pattern: str) -> int:
    """Number of lines of the logs, compressed or not, that contain the pattern."""
    found, count = re.compile(pattern), 0
    for path in folder.iterdir():
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            count += sum(found.search(line) is not None for line in lines)
    return count


def _found(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _dftracer_library() -> Path | None:
    spec = importlib.util.find_spec("dftracer")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("lib*/libdftracer_preload.so")):
            return path
    return None


def _darshan(library: Path, folder: Path) -> dict[str, str]:
    """Darshan without MPI, with enough memory for records that its defaults would drop."""
    settings = folder.parent / "darshan.conf"
    settings.write_text("MOD_ENABLE DXT_POSIX\nMODMEM 1024\nMAX_RECORDS 4096 POSIX,DXT_POSIX\n", encoding="utf-8")
    return {
        "LD_PRELOAD": str(library),
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_CONFIG_PATH": str(settings),
        "DARSHAN_LOGFILE": str(folder / "log.darshan"),
    }


def _dftracer(library: Path, folder: Path, data: Path) -> dict[str, str]:
    """DFTracer with offset and size of each call, which analyses of the trace need."""
    return {
        "LD_PRELOAD": str(library),
        "DFTRACER_ENABLE": "1",
        "DFTRACER_INIT": "PRELOAD",
        "DFTRACER_INC_METADATA": "1",
        "DFTRACER_LOG_FILE": str(folder / "log"),
        "DFTRACER_DATA_DIR": str(data),
    }
