"""What one span costs: ``python benchmarks/span_cost.py [--directory DIR] [--count N] [--threads N]``.

Prints a Markdown table of nanoseconds per call, recorder off and on, the loop itself subtracted: the best
and the median of several rounds, since other work on the machine only ever adds time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dlio_torch.trace.events import read_events
from dlio_torch.trace.spans import NULL, RECORD, Recorder

ROUNDS = 7


def empty(recorder: Recorder, count: int) -> None:
    for _ in range(count):
        pass


def add(recorder: Recorder, count: int) -> None:
    now = time.perf_counter_ns()
    for index in range(count):
        recorder.add("read", now, now, step=index, file="data/file", offset=index, bytes=4096)


def span(recorder: Recorder, count: int) -> None:
    for index in range(count):
        with recorder.span("read", step=index, file="data/file", offset=index, bytes=4096):
            pass


def rounds(body: Callable[[Recorder, int], None], recorder: Recorder, count: int) -> list[float]:
    """Nanoseconds per turn of each round."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        body(recorder, count)
        times.append((time.perf_counter_ns() - start) / count)
    return times


def in_threads(threads: int, recorder: Recorder, count: int) -> list[float]:
    """Nanoseconds per ``add`` of all threads together, which share one interpreter lock."""
    times = []
    for _ in range(ROUNDS):
        workers = [threading.Thread(target=add, args=(recorder, count // threads)) for _ in range(threads)]
        start = time.perf_counter_ns()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        times.append((time.perf_counter_ns() - start) / (count // threads * threads))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=None, help="folder on the file system of the runs")
    parser.add_argument("--count", type=int, default=100_000, help="spans of a round")
    parser.add_argument("--threads", type=int, default=4, help="threads of the last row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        recorder = Recorder(folder, rank=0)
        loop = min(rounds(empty, NULL, options.count))
        rows = [
            ("add", "off", rounds(add, NULL, options.count)),
            ("add", "on", rounds(add, recorder, options.count)),
            ("with span", "off", rounds(span, NULL, options.count)),
            ("with span", "on", rounds(span, recorder, options.count)),
            (f"add, {options.threads} threads", "on", in_threads(options.threads, recorder, options.count)),
        ]
        print("| call | recorder | best (ns) | median (ns) |")
        print("|---|---|---:|---:|")
        for name, state, times in rows:
            print(f"| {name} | {state} | {min(times) - loop:.0f} | {statistics.median(times) - loop:.0f} |")
        start = time.perf_counter_ns()
        count = len(read_events(folder).frame)
        seconds = (time.perf_counter_ns() - start) / 1e9
        print(f"\n{RECORD.size} bytes a record; {count} records read in {seconds:.2f} s.")


if __name__ == "__main__":
    main()
