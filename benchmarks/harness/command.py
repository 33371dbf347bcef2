"""The command line of the benchmarks: ``python -m benchmarks [NAME ...] [options]``.

A benchmark is a module of this package that is named in :data:`MEMBERS` and has

    NAME: str                                             as in MEMBERS
    add_arguments(parser: ArgumentParser) -> None         options of its own
    run(arguments: Namespace) -> Iterable[Part]           yields tables, and what is missing

The first line of its docstring says what it measures.  ``arguments`` always has ``rounds`` (None: not given),
``quick``, ``directory`` (None: a temporary folder) and ``output``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from benchmarks.harness.record import Record
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, markdown
from dlio_torch.errors import DlioError

MEMBERS = (
    "loaders",
    "direct_io",
    "busy_thread",
    "placement",
    "peer_dlio",
    "hdf5_read",
    "trace_cost",
    "span_cost",
    "compute_error",
    "advice_check",
    "generation",
    "own_cost",
    "own_data",
    "trial_cost",
    "predict_check",
    "node_check",
    "start_up",
    "fuzz",
    "kill_points",
    "hostile",
    "soak",
    "same_behaviour",
    "tune_search",
    "published_studies",
    "gds",
    "au_truth",
    "checkpoint_plans",
    "checkpoints",
    "fit_check",
)


class Benchmark(Protocol):
    """Interface of a benchmark's module; see above."""

    NAME: str
    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> Iterable[Part]: ...


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line, without argparse's usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; --help shows the options\n")


def load(name: str) -> Benchmark:
    """Imports the module of a benchmark."""
    module: Benchmark = importlib.import_module(f"benchmarks.{name}")
    return module


def title(benchmark: Benchmark) -> str:
    """First line of a benchmark's docstring: what it measures."""
    return (benchmark.__doc__ or "").strip().splitlines()[0]


def common() -> argparse.ArgumentParser:
    """Adds the options that every benchmark has."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("options of every benchmark")
    group.add_argument("--rounds", type=_positive, metavar="N", help="number of measured rounds of each variant")
    group.add_argument("--quick", action="store_true", help="run one short round, as a test of the benchmark")
    group.add_argument("--directory", type=_folder, metavar="DIR", help="folder on the file system to measure")
    group.add_argument(
        "--output", type=Path, metavar="DIR", help=("write NAME.md, NAME.csv and NAME.json to this folder, too")
    )
    return parser


def measure(name: str, arguments: Sequence[str]) -> Record:
    """Runs one benchmark with these arguments and prints its tables."""
    benchmark = load(name)
    parser = _Parser(
        prog=f"python -m benchmarks {name}",
        description=benchmark.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common()],
    )
    benchmark.add_arguments(parser)
    found = parser.parse_args(arguments)
    say(name)
    record = Record(benchmark.NAME, title(benchmark), found, found.output)
    print(f"## {name}\n\n{title(benchmark)}\n\n{record.machine()}\n", flush=True)
    table = ""
    for part in benchmark.run(found):
        record.add(part)
        if isinstance(part, Missing) or not part.rows:
            continue
        if part.name != table:
            print("\n" * bool(table) + (f"{part.title}\n\n" if part.title else ""), end="")
        print(markdown(part.rows, head=part.name != table), end="", flush=True)
        table = part.name
    record.write()
    if record.missing:
        print(f"\n{record.left_out()}")
    print(f"\nSystem load at the end: {record.environment['load_after'][0]:.1f}\n", flush=True)
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named benchmarks, or all; returns an exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    names = words[: _leading(words)]
    rest = words[len(names) :]
    unknown = [name for name in names if name not in MEMBERS]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; name one of {', '.join(MEMBERS)}", file=sys.stderr)
        return 2
    if len(names) != 1:
        parser = _Parser(
            prog="python -m benchmarks",
            usage="python -m benchmarks [NAME ...] [options]; without NAME, all benchmarks run",
            epilog="python -m benchmarks NAME --help shows the options of one benchmark.",
            parents=[common()],
        )
        parser.add_argument("--list", action="store_true", help="list the benchmarks and what they measure")
        if parser.parse_args(rest).list:
            print("\n".join(f"{name:14} {title(load(name))}" for name in MEMBERS))
            return 0
    try:
        for name in names or MEMBERS:
            measure(name, rest)
    except DlioError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0


def alone(name: str) -> NoReturn:
    """Ends this process with the result of one benchmark, which was started as a module."""
    raise SystemExit(main([name, *sys.argv[1:]]))


def _leading(words: Sequence[str]) -> int:
    """Number of words before the first option."""
    return next((number for number, word in enumerate(words) if word.startswith("-")), len(words))


def _folder(text: str) -> Path:
    """Checks that a folder exists and can be written to."""
    if not os.path.isdir(text):  # which is False for a name that no file system takes, too
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}; create it first")
    if not os.access(text, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"the folder {text!r} is not writable; choose another folder")
    return Path(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)
