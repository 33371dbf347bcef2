"""Measures the error of emulated compute, and how much it slows down the loader's threads.

Two questions, two tables:

1. Error of a step of 0.1, 1, 10 and 100 ms, with 0, 1 and 2 busy loader-like threads in the same
   interpreter.  *Work* is the error of the emulated work itself, which ``spend`` returns; *caller*
   adds the way back into Python, with the wait for the interpreter lock when a thread holds it.
2. Items per second of those threads while the main thread sleeps, spins natively, or spins in Python
   (what a benchmark does without native code), taken in turns; ratios are to the sleep.  The control
   sleeps too, while another process spins: what it loses is lost to the core, not to the lock.

``time.sleep`` and the Python spin are there for comparison.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, interleave, rounds_of, say
from benchmarks.harness.tables import Cell, Row, Table
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.config.schema import ComputeConfig

NAME = "compute_error"
ITEM_BYTES = 40_960
ITEMS_OF_FILE = 256
REQUESTS_MS = (0.1, 1.0, 10.0, 100.0)
REPEATS = {0.1: 300, 1.0: 200, 10.0: 40, 100.0: 10}

CONTROL = "sleep, other process spins"

Wait = Callable[[int], int]
"""Spends ns of time; returns the achieved ns."""


class Loaders:
    """Threads that read items from a cached file and do some Python work on each, as loader threads do."""

    def __init__(self, path: Path, count: int) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._stop = threading.Event()
        self.items = [0] * count
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        buffer = bytearray(ITEM_BYTES)
        item = np.frombuffer(buffer, dtype=np.uint8)
        while not self._stop.is_set():
            index = self.items[number] * 7919 % ITEMS_OF_FILE
            os.preadv(self._file, [buffer], index * ITEM_BYTES)
            batch = [item[start : start + 4096] for start in range(0, ITEM_BYTES, 4096)]
            np.concatenate(batch)
            self.items[number] += 1

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        os.close(self._file)


def python_spin(ns: int) -> int:
    start = time.perf_counter_ns()
    while (now := time.perf_counter_ns()) - start < ns:
        pass
    return now - start


def plain_sleep(ns: int) -> int:
    start = time.perf_counter_ns()
    time.sleep(ns / 1e9)
    return time.perf_counter_ns() - start


@contextmanager
def ways() -> Iterator[dict[str, Wait]]:
    with (
        make_emulator(ComputeConfig(mode="sleep"), seed=1, rank=0) as sleep,
        make_emulator(ComputeConfig(mode="spin"), seed=1, rank=0) as spin,
    ):
        yield {"sleep": sleep.spend, "spin": spin.spend, "time.sleep": plain_sleep, "Python spin": python_spin}


@contextmanager
def spinning_process() -> Iterator[Wait]:
    """A wait that sleeps while another process spins natively for the same time."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve_spins, args=(theirs,))
    process.start()
    try:
        with make_emulator(ComputeConfig(mode="sleep"), seed=1, rank=0) as sleep:

            def wait(ns: int) -> int:
                ours.send(ns)
                return sleep.spend(ns)

            yield wait
    finally:
        ours.send(0)
        process.join()


def _serve_spins(requests: multiprocessing.connection.Connection) -> None:
    with make_emulator(ComputeConfig(mode="spin"), seed=1, rank=0) as spin:
        while ns := requests.recv():
            spin.spend(ns)


def measure_error(way: str, wait: Wait, busy: int, request_ms: float, repeats: int) -> Row:
    request_ns = round(request_ms * 1e6)
    work, caller = [], []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        achieved = wait(request_ns)
        caller.append((time.perf_counter_ns() - start - request_ns) / 1e3)
        work.append((achieved - request_ns) / 1e3)
    row: dict[str, Cell] = {"way": way, "busy threads": busy, "asked (ms)": request_ms}
    for name, errors in (("work", work), ("caller", caller)):
        for part, value in zip(("median", "p95", "max"), np.percentile(errors, [50, 95, 100]), strict=True):
            row[f"{name} {part} (us)"] = round(float(value), 2)
    return row


def measure_rates(waits: dict[str, Wait], loaders: Loaders, rounds: int, window_s: float) -> list[Row]:
    def rate(wait: Wait) -> Figures:
        before, start = sum(loaders.items), time.perf_counter()
        while time.perf_counter() - start < window_s:
            wait(5_000_000)
        return {"items_per_s": (sum(loaders.items) - before) / (time.perf_counter() - start)}

    found = interleave({way: partial(rate, wait) for way, wait in waits.items()}, rounds, warmups=0)
    return [
        {
            "main thread": way,
            "busy threads": len(loaders.items),
            "items/s": found.spread(way, "items_per_s"),
            "of sleep": found.ratio(way, "items_per_s", "sleep"),
        }
        for way in waits
    ]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds no options: this benchmark has none of its own."""


def run(arguments: Namespace) -> Iterator[Table]:
    quick = arguments.quick
    errors: list[Row] = []
    rates: list[Row] = []
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as folder,
        spinning_process() as control,
        ways() as waits,
    ):
        path = Path(folder) / "items"
        path.write_bytes(os.urandom(ITEM_BYTES * ITEMS_OF_FILE))
        for busy in (0, 1, 2):
            say(f"{busy} busy threads")
            loaders = Loaders(path, busy)
            try:
                for request_ms in REQUESTS_MS[:3] if quick else REQUESTS_MS:
                    repeats = max(3, REPEATS[request_ms] // 20) if quick else REPEATS[request_ms]
                    errors += [measure_error(way, wait, busy, request_ms, repeats) for way, wait in waits.items()]
                if busy:
                    rounds = 2 if quick else rounds_of(arguments, 10)
                    rates += measure_rates(waits | {CONTROL: control}, loaders, rounds, 0.05 if quick else 0.25)
            finally:
                loaders.close()
    yield Table("errors", errors, "Time of a step beyond the requested compute time.")
    yield Table("rates", rates, "Items per second of the busy threads while the main thread waits.")


if __name__ == "__main__":
    alone(NAME)
