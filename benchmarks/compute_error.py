"""How exact emulated compute is, and what it costs the loader's threads.

Two questions, two tables (Markdown on stdout, everything in ``--json FILE``):

1. Error of a step of 0.1, 1, 10 and 100 ms, with 0, 1 and 2 busy loader-like threads in the same
   interpreter.  *Work* is the error of the emulated work itself, which ``spend`` returns; *caller*
   adds the way back into Python, with the wait for the interpreter lock when a thread holds it.
2. Items per second of those threads while the main thread sleeps, spins natively, or spins in Python
   (what a benchmark does without native code), taken in turns; ratios are to the sleep.  The control
   sleeps too, while another process spins: what it loses is lost to the core, not to the lock.

``time.sleep`` and the Python spin are there for comparison.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dlio_torch.compute.emulate import make_emulator
from dlio_torch.config.schema import ComputeConfig

ITEM_BYTES = 40_960
ITEMS_OF_FILE = 256
REQUESTS_MS = (0.1, 1.0, 10.0, 100.0)
REPEATS = {0.1: 300, 1.0: 200, 10.0: 40, 100.0: 10}

CONTROL = "sleep, other process spins"

Wait = Callable[[int], int]
"""Spends ns of time; returns the achieved ns."""


@dataclass(frozen=True)
class ErrorRow:
    """Errors of one way to wait, one length and one number of busy threads, in microseconds."""

    way: str
    busy_threads: int
    request_ms: float
    repeats: int
    work_median_us: float
    work_p95_us: float
    work_max_us: float
    caller_median_us: float
    caller_p95_us: float
    caller_max_us: float


@dataclass(frozen=True)
class RateRow:
    """Speed of loader-like threads while the main thread waits in one way."""

    way: str
    busy_threads: int
    items_per_s: float
    ratio_to_sleep: float


class Loaders:
    """Threads that read items from a cached file and do some Python work on each, as loaders do."""

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


def measure_error(way: str, wait: Wait, busy: int, request_ms: float, repeats: int) -> ErrorRow:
    request_ns = round(request_ms * 1e6)
    work, caller = [], []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        achieved = wait(request_ns)
        caller.append((time.perf_counter_ns() - start - request_ns) / 1e3)
        work.append((achieved - request_ns) / 1e3)
    figures = [round(float(value), 2) for errors in (work, caller) for value in np.percentile(errors, [50, 95, 100])]
    return ErrorRow(way, busy, request_ms, repeats, *figures)


def measure_rates(waits: dict[str, Wait], loaders: Loaders, rounds: int, window_s: float) -> list[RateRow]:
    rates: dict[str, list[float]] = {way: [] for way in waits}
    for _ in range(rounds):
        for way, wait in waits.items():
            before, start = sum(loaders.items), time.perf_counter()
            while time.perf_counter() - start < window_s:
                wait(5_000_000)
            rates[way].append((sum(loaders.items) - before) / (time.perf_counter() - start))
    medians = {way: statistics.median(values) for way, values in rates.items()}
    return [
        RateRow(way, len(loaders.items), round(rate, 1), round(rate / medians["sleep"], 3))
        for way, rate in medians.items()
    ]


def run(*, quick: bool = False) -> tuple[list[ErrorRow], list[RateRow]]:
    """All measurements; ``quick`` takes few and short ones and is good for a look only."""
    errors: list[ErrorRow] = []
    rates: list[RateRow] = []
    with tempfile.TemporaryDirectory() as folder, spinning_process() as control, ways() as waits:
        path = Path(folder) / "items"
        path.write_bytes(os.urandom(ITEM_BYTES * ITEMS_OF_FILE))
        for busy in (0, 1, 2):
            loaders = Loaders(path, busy)
            try:
                for request_ms in REQUESTS_MS[:3] if quick else REQUESTS_MS:
                    repeats = max(3, REPEATS[request_ms] // 20) if quick else REPEATS[request_ms]
                    errors += [measure_error(way, wait, busy, request_ms, repeats) for way, wait in waits.items()]
                if busy:
                    rates += measure_rates(
                        waits | {CONTROL: control}, loaders, 2 if quick else 10, 0.05 if quick else 0.25
                    )
            finally:
                loaders.close()
    return errors, rates


def print_tables(errors: list[ErrorRow], rates: list[RateRow]) -> None:
    print("Errors in microseconds: median / p95 / max.\n")
    print("| way | busy threads | asked (ms) | work | caller |")
    print("|---|---|---|---|---|")
    for row in sorted(errors, key=lambda row: (row.way in ("time.sleep", "Python spin"), row.way, row.busy_threads)):
        work = f"{row.work_median_us:.1f} / {row.work_p95_us:.1f} / {row.work_max_us:.0f}"
        caller = f"{row.caller_median_us:.1f} / {row.caller_p95_us:.1f} / {row.caller_max_us:.0f}"
        print(f"| {row.way} | {row.busy_threads} | {row.request_ms:g} | {work} | {caller} |")
    print("\nItems per second of the busy threads while the main thread waits.\n")
    print("| main thread | busy threads | items/s | of sleep |")
    print("|---|---|---|---|")
    for rate in rates:
        print(f"| {rate.way} | {rate.busy_threads} | {rate.items_per_s:.0f} | {rate.ratio_to_sleep:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Error of emulated compute, and its cost to loader threads.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures here")
    parser.add_argument("--quick", action="store_true", help="few and short repeats, for a look only")
    arguments = parser.parse_args()
    errors, rates = run(quick=arguments.quick)
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n")
    print_tables(errors, rates)
    if arguments.json:
        record = {
            "cores": cores,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "errors": [asdict(row) for row in errors],
            "rates": [asdict(row) for row in rates],
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
