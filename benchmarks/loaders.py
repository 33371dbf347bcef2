"""Measures loaders against the storage: their byte rate relative to that of two threads that only read.

Samples of every size, in order and shuffled, warm or cold, out of each layout: our loaders, the library of the layout
in a loop, and what torch drives it by; then loaders of others, each over equal samples in its own native format,
beside ours.  The baseline is fio with requests of a sample's size, or a reader of our own in C where fio is not
installed.  All ways of a table's part take turns, so that other work on the machine slows all of them, and every
ratio is one of the same round.  All files are read once, in order, before they are measured in the page cache.

``--cold`` takes the files out of the page cache before each measurement, and makes sure that they are; a way whose
files stay (because a process has mapped them) is left out and named.

Peers run in processes of their own, by the first interpreter of ``--peers-python`` that has them:
``python3 -m venv peers && peers/bin/pip install torch webdataset`` and ``--peers-python peers/bin/python``.
"""

from __future__ import annotations

import itertools
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.loading import baseline, ours, plain
from benchmarks.loading.arguments import chosen, sizes_of
from benchmarks.loading.work import Way, Work, make_cold, make_warm, write_raw
from benchmarks.peers.remote import Peers, Wanted, interpreters
from dlio_torch.errors import DlioError

NAME = "loaders"
SIZES = "2048,40000,262144,16777216"
ORDERS = "sequential,shuffled"
PEERS = "peers"
ANCHORS = ("ours, decoupled", "ours, dataloader", plain.DATALOADER)
"""Stand beside the peers, with NPY data."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", default="", help=f"sizes of samples in bytes: {SIZES}")
    parser.add_argument("--layouts", default="", help=f"of {','.join([*ours.LAYOUTS, PEERS])}; default: all")
    parser.add_argument("--orders", default="", help=f"orders of samples: {ORDERS}")
    parser.add_argument(
        "--ways",
        default="",
        help=("run only the baseline and variants whose names contain one of these texts, separated by ;"),
    )
    parser.add_argument(
        "--bytes",
        type=int,
        default=0,
        help="approximate bytes of an epoch; 0: 1 GiB, at most 131,072 samples; 2 MiB with --quick",
    )
    parser.add_argument("--cold", action="store_true", help="evict the page cache before each measurement")
    parser.add_argument(
        "--peers-python", metavar="PATH", help=("Python interpreters that have the other loaders, separated by commas")
    )


def run(arguments: Namespace) -> Iterator[Part]:
    quick = arguments.quick
    sizes = sizes_of(arguments, SIZES)
    orders = chosen("--orders", arguments.orders or ("shuffled" if quick else ORDERS), ORDERS.split(","))
    every = [*ours.LAYOUTS, PEERS]
    layouts = chosen("--layouts", arguments.layouts, every) if arguments.layouts else every
    with closing(Peers(interpreters(arguments.peers_python))) as peers:
        if PEERS in layouts:
            yield from peers.missing
        for size, order, layout in itertools.product(sizes, orders, layouts):
            work = Work.of(
                size, arguments.bytes or (2 << 20 if quick else min(1 << 30, size << 17)), order, cold=arguments.cold
            )
            say(f"{layout}, {size} bytes, {order}")
            with tempfile.TemporaryDirectory(dir=arguments.directory) as folder, ExitStack() as stack:
                yield from _part(layout, work, Path(folder), peers, arguments, stack)


def _part(
    layout: str, work: Work, folder: Path, peers: Peers, arguments: Namespace, stack: ExitStack
) -> Iterator[Part]:
    raw = folder / "raw"
    write_raw(raw, work)
    where = f"{layout}, {work.size} bytes, {work.order}"
    ways = {way.name: way for way in baseline.ways(raw, work)}
    parts = [part for part in arguments.ways.split(";") if part]

    def wanted(name: str) -> bool:
        return not parts or any(part in name for part in parts)

    try:
        for way in _ways(layout, work, folder, raw, peers, wanted):
            if isinstance(way, Missing):
                yield Missing(way.way, way.why, where)
                continue
            stack.callback(way.close)
            if wanted(way.name):
                ways[way.name] = way
    except DlioError as error:
        yield Missing("our loaders", str(error), where)
        return
    if not work.cold:
        make_warm({file for way in ways.values() for file in way.files})
    found = interleave({name: _measure(way, work) for name, way in ways.items()}, rounds_of(arguments))
    yield from (Missing(name, why, where) for name, why in found.dropped.items())
    yield Table(NAME, list(rows(found, layout, work)), f"The baseline is {baseline.reader()}.")


def _ways(layout: str, work: Work, folder: Path, raw: Path, peers: Peers, wanted: Wanted) -> Iterable[Way | Missing]:
    data = ours.Data(folder, "npy" if layout == PEERS else layout, work)
    own = itertools.chain(data.ways(), plain.ways("npy" if layout == PEERS else layout, data.path, work))
    if layout != PEERS:
        return own
    anchors = (way for way in own if isinstance(way, Way) and way.name in ANCHORS)
    return itertools.chain(anchors, peers.ways(folder, raw, work, wanted))


def _measure(way: Way, work: Work) -> Callable[[], Figures]:
    def measure() -> Figures:
        if work.cold:
            make_cold(way.files)
        return way.measure()

    return measure


def rows(found: Rounds, layout: str, work: Work) -> Iterator[Row]:
    """Table rows, one per variant, the baseline first."""
    workers = plain.DATALOADER
    for name in found.figures:
        yield {
            "layout": layout,
            "sample (bytes)": work.size,
            "batch": work.batch,
            "order": work.order,
            "cache": "cold" if work.cold else "warm",
            "way": name,
            "MB/s": found.spread(name, "bytes_per_s").scaled(1e-6),
            "of the baseline": found.ratio(name, "bytes_per_s", baseline.BASELINE),
            "processor time of a byte, of the baseline": found.ratio(name, "cpu_s_per_byte", baseline.BASELINE).median,
            f"of {workers}": found.ratio(name, "bytes_per_s", workers) if workers in found.figures else None,
        }


if __name__ == "__main__":
    alone(NAME)
