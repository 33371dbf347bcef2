"""Measures loaders beside a Python thread that counts and so holds the interpreter lock as often as it can.

The thread takes a core as well, which no loader can help: the rate beside it is compared with the rate beside a process
that counts in the same way.  Loaders have one reader each, a thread or a worker: where all may run anywhere, and where
the reader has the last CPU for itself.

Samples are shuffled and in the page cache.  All ways of a size and layout take turns, so that other work on the machine
slows all of them, and every ratio is one of the same round.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Measure, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.loading.arguments import chosen, sizes_of
from benchmarks.loading.ours import LAYOUTS, Data
from benchmarks.loading.work import Way, Work, make_warm
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.errors import ConfigError, DlioError

NAME = "busy_thread"
SIZES = "40000,262144"
DEFAULT = "npy,hdf5"
ALONE, PROCESS, THREAD = "alone", "beside a process", "beside a thread"
OWN_CORE = "on a core of its own"
_WORKER = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"}
LOADERS: dict[str, dict[str, Any]] = {
    "decoupled, 1 thread": {"engine": "decoupled", "read_threads": 1},
    "decoupled, 1 worker": {"engine": "decoupled", "read_threads": 1, **_WORKER},
    "dataloader, 1 worker": _WORKER,
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", default="", help=f"sizes of samples in bytes: {SIZES}")
    parser.add_argument("--layouts", default="", help=f"of {','.join(LAYOUTS)}; default: {DEFAULT}")
    parser.add_argument(
        "--loaders", default="decoupled", help=f"loaders whose name contains this: {'; '.join(LOADERS)}"
    )
    parser.add_argument("--prefetch-bytes", type=int, default=0, help="loader.prefetch_bytes; 0: the default")
    parser.add_argument("--bytes", type=int, default=0, help="bytes of an epoch; 0: 512 MiB, with --quick 4 MiB")


def run(arguments: Namespace) -> Iterator[Part]:
    sizes = sizes_of(arguments, SIZES)
    layouts = chosen("--layouts", arguments.layouts or ("npy" if arguments.quick else DEFAULT), LAYOUTS)
    if not any(arguments.loaders in name for name in LOADERS):
        raise ConfigError(f"--loaders={arguments.loaders}: there is none", hint=f"known are {'; '.join(LOADERS)}")
    if arguments.prefetch_bytes < 0:
        raise ConfigError(f"--prefetch-bytes={arguments.prefetch_bytes} is negative", hint="0 takes the default")
    total = arguments.bytes or (4 << 20 if arguments.quick else 512 << 20)
    for size in sizes:
        for layout in layouts:
            say(f"{layout}, {size} bytes")
            work = Work.of(size, total, "shuffled", cold=False)
            with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
                data = Data(Path(folder), layout, work)
                make_warm(data.files)
                for placed in (False, True):
                    with ExitStack() as stack:
                        yield from _part(data, layout, arguments, stack, placed=placed)


def loaders(data: Data, names: str, prefetch_bytes: int) -> Iterator[Way | Missing]:
    """Each loader whose name contains ``names``, or the reason why it cannot read this layout."""
    window = {"prefetch_bytes": prefetch_bytes} if prefetch_bytes else {}
    for name, options in LOADERS.items():
        if names not in name:
            continue
        try:
            loader = data.assembled(options | window if "engine" in options else options)
        except DlioError as error:
            yield Missing(name, str(error))
        else:
            yield Way(name, partial(_epoch, loader, data.work), close=loader.close)


def _epoch(loader: BatchLoader, work: Work) -> Figures:
    """Takes the batches of an epoch.  Processor time is not looked up: it takes seconds beside a thread that counts."""
    began = time.perf_counter()
    for _ in loader.epoch(0):
        pass
    return {"bytes_per_s": work.bytes / (time.perf_counter() - began)}


def _part(data: Data, layout: str, arguments: Namespace, stack: ExitStack, *, placed: bool) -> Iterator[Part]:
    where = f"{layout}, {data.work.size} bytes"
    usable = sorted(os.sched_getaffinity(0))
    if placed and len(usable) < 2:
        yield Missing(OWN_CORE, "there is one CPU", where)
        return
    ready: list[Way] = []
    for loader in loaders(data, arguments.loaders, arguments.prefetch_bytes):
        if isinstance(loader, Missing):
            yield Missing(loader.way, loader.why, where)
            continue
        stack.callback(loader.close)
        ready.append(loader)
        if placed:
            with _running_on([usable[-1]]):
                loader.measure()  # starts its threads and workers, which stay there
    with _running_on(usable[:-1] if placed else usable), counting_thread() as thread, counting_process() as process:
        beside: dict[str, Callable[[], AbstractContextManager[None]]] = {
            ALONE: contextlib.nullcontext, PROCESS: process, THREAD: thread,
        }  # fmt: skip
        ways: dict[str, Measure] = {}
        for loader in ready:
            ways |= {f"{loader.name}, {case}": _measured(loader, during) for case, during in beside.items()}
        found = interleave(ways, rounds_of(arguments, 9), warmups=0 if arguments.quick else 1)
    rows: list[Row] = []
    for name in LOADERS:
        if f"{name}, {THREAD}" not in found.figures:
            continue
        row: Row = {"layout": layout, "sample (bytes)": data.work.size, "loader": name}
        row["reader"] = OWN_CORE if placed else "anywhere"
        row |= {f"{case}, MB/s": found.spread(f"{name}, {case}", "bytes_per_s").scaled(1e-6) for case in beside}
        row["of beside a process"] = found.ratio(f"{name}, {THREAD}", "bytes_per_s", f"{name}, {PROCESS}")
        rows.append(row)
    yield Table(NAME, rows)


@contextlib.contextmanager
def _running_on(cpus: Collection[int]) -> Iterator[None]:
    """Restricts the calling thread, and what it starts, to CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _measured(loader: Way, during: Callable[[], AbstractContextManager[None]]) -> Measure:
    def measure() -> Figures:
        with during():
            return loader.measure()

    return measure


@contextlib.contextmanager
def counting_thread() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Gives a context in which a thread of this process counts."""
    going, ended = threading.Event(), threading.Event()

    def count() -> None:
        number = 0
        while going.wait() and not ended.is_set():
            while going.is_set() and not ended.is_set():
                number += 1

    @contextlib.contextmanager
    def during() -> Iterator[None]:
        going.set()
        time.sleep(0.01)  # until it has the lock
        try:
            yield
        finally:
            going.clear()

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield during
    finally:
        ended.set()
        going.set()
        thread.join()


@contextlib.contextmanager
def counting_process() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Gives a context in which another process counts."""
    program = "import threading; going = threading.Event(); going.set(); number = 0\nwhile going.is_set(): number += 1"
    process = subprocess.Popen([sys.executable, "-S", "-c", program])
    os.kill(process.pid, signal.SIGSTOP)

    @contextlib.contextmanager
    def during() -> Iterator[None]:
        os.kill(process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGSTOP)

    try:
        yield during
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    alone(NAME)
