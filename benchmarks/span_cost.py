"""Measures the cost of one span: nanoseconds per call, recorder off and on, without the cost of the loop.

The least is shown beside the median, since other work on the machine only ever adds time.
"""

from __future__ import annotations

import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, interleave, rounds_of
from benchmarks.harness.tables import Row, Table
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL, RECORD, Recorder

NAME = "span_cost"
LOOP = "empty loop"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=100_000, help="number of spans per round")
    parser.add_argument("--threads", type=int, default=4, help="number of threads in the last row")


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


def timed(body: Callable[[Recorder, int], None], recorder: Recorder, count: int, threads: int = 1) -> Figures:
    """Nanoseconds per iteration of all threads together, which share one interpreter lock."""
    share = count // threads
    workers = [threading.Thread(target=body, args=(recorder, share)) for _ in range(threads)]
    start = time.perf_counter_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"ns": (time.perf_counter_ns() - start) / (share * threads)}


def run(arguments: Namespace) -> Iterator[Table]:
    count = arguments.count // 100 if arguments.quick else arguments.count
    many = arguments.threads
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        recorder = Recorder(Path(folder), rank=0)
        found = interleave(
            {
                LOOP: lambda: timed(empty, NULL, count),
                "add, off": lambda: timed(add, NULL, count),
                "add, on": lambda: timed(add, recorder, count),
                "with span, off": lambda: timed(span, NULL, count),
                "with span, on": lambda: timed(span, recorder, count),
                f"add, {many} threads, on": lambda: timed(add, recorder, count, many),
            },
            rounds_of(arguments),
        )
        loop = found.spread(LOOP, "ns").median
        rows: list[Row] = []
        for name in found.figures:
            if name != LOOP:
                call, recorded = name.rsplit(", ", 1)
                times = [value - loop for value in found.values(name, "ns")]
                middle = found.spread(name, "ns").median - loop
                rows.append({"call": call, "recorder": recorded, "least (ns)": min(times), "median (ns)": middle})
        yield Table(NAME, rows)
        start = time.perf_counter()
        records = len(read_events(Path(folder)).frame)
        seconds = time.perf_counter() - start
        yield Table("reading", [{"bytes a record": RECORD.size, "records": records, "reading all (s)": seconds}])


if __name__ == "__main__":
    alone(NAME)
