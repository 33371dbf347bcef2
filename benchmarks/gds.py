"""Measures reads straight to a GPU's memory (GPUDirect Storage) beside reads to main memory that are copied there.

All ways read the same samples of the same NPY files in the same order, cold, without compute.  Without a GPU or cuFile,
the ways that need it are left out with the reason.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Unavailable, interleave, rounds_of
from benchmarks.harness.tables import Missing, Part, Table
from dlio_torch.api.runs import run as run_emulator
from dlio_torch.config.compose import compose
from dlio_torch.errors import PreconditionError
from dlio_torch.train.to_device import needs_gpu

NAME = "gds"
BASELINE = "main memory, no GPU"
_GPU = ("train.device=cuda",)
_AHEAD = (*_GPU, "loader.pin_memory=true", "loader.prefetch_to_device=2")
WAYS: dict[str, tuple[str, ...]] = {
    BASELINE: (),
    "pageable memory, copied in the step": _GPU,
    "page-locked memory, two batches copied ahead": _AHEAD,
    "page-locked memory past the page cache, two batches copied ahead": (*_AHEAD, "dataset.direct_io=true"),
    "GPU memory by cuFile": (*_GPU, "loader.read_to=device"),
}
"""Ways of reading, and the options of each."""

_SAMPLE_BYTES = 1 << 20
_PER_FILE = 64
_BATCH = 16


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--files", type=int, help="files of 64 MiB each, 64; with --quick 1")
    parser.add_argument("--threads", type=int, default=4, help="reader threads")


def options_of(arguments: Namespace, folder: Path) -> list[str]:
    """The options that all ways share."""
    files = arguments.files or (1 if arguments.quick else 64)
    field = f"{{name: data, dtype: uint8, shape: [{_SAMPLE_BYTES}]}}"
    return [
        *("scale=paper", "dataset=npy", f"dataset.num_files={files}", f"dataset.samples_per_file={_PER_FILE}"),
        *(f"dataset.fields=[{field}]", f"dataset.root={folder}/data", f"output.root={folder}/runs"),
        *("access.order=shuffled", f"train.batch_size={_BATCH}", "train.epochs=1", "compute.mode=none"),
        *("loader.engine=decoupled", f"loader.read_threads={arguments.threads}", "cache.state=cold"),
        *("trace.spans=false", "storage.limits=off"),
    ]


def measure(options: Sequence[str], orders: dict[str, Any]) -> Figures:
    """One run.

    Args:
        options: of the run.
        orders: checksum and bytes of the samples that the first way read, which all ways must read.

    Raises:
        Unavailable: this machine cannot run it, or it read something else.
    """
    try:
        needs_gpu(compose(["recipe=minimal", *options]).config)  # no process need start to say so
        summary = run_emulator(recipe="minimal", overrides=options).summary
    except PreconditionError as error:
        raise Unavailable(error.message) from error
    content = {"order": [row["crc32"] for row in summary["order"]], "bytes": total(summary, "bytes")}
    if content != orders.setdefault("content", content):
        raise Unavailable("the samples were not the same as those of the other ways")
    return {
        "MB/s": total(summary, "bytes") / total(summary, "elapsed_s") / 1e6,
        "samples/s": total(summary, "samples") / total(summary, "elapsed_s"),
    }


def total(summary: Mapping[str, Any], figure: str) -> float:
    """A figure of warm-up and measured steps together."""
    return float(sum(summary[phase][figure] or 0 for phase in ("warmup", "train")))


def run(arguments: Namespace) -> Iterator[Part]:
    orders: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        shared = options_of(arguments, Path(folder))
        ways = {name: lambda more=more: measure([*shared, *more], orders) for name, more in WAYS.items()}
        found = interleave(ways, rounds_of(arguments, 5), warmups=not arguments.quick)
    rows = [
        {
            "way": name,
            "MB/s": found.spread(name, "MB/s"),
            "samples/s": found.spread(name, "samples/s"),
            f"of {BASELINE}": found.ratio(name, "MB/s", BASELINE),
        }
        for name in found.figures
        if name not in found.dropped
    ]
    yield Table(NAME, rows)
    yield from (Missing(name, why) for name, why in found.dropped.items())


if __name__ == "__main__":
    alone(NAME)
