"""Measures what the placement of workers and their start method do to samples/s, time to the first batch and memory.

Loaders over equal generated samples take turns: no placement, ``loader.affinity=numa`` and ``cores`` with forked
workers and with reader threads of the decoupled engine, and the start methods of workers without a placement.  Every
ratio is one of the same round.  Samples are read from the page cache; with ``--preprocess`` each costs the reader CPU
time, too.

The trainer takes batches as fast as they come, on the CPUs that the placement leaves to it.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.loading.ours import Data
from benchmarks.loading.work import Work
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.config.schema_training import ComputeConfig
from dlio_torch.config.validate import validate
from dlio_torch.data.engines import registry as engines
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.placement_plan import LocalRank, plan_placement
from dlio_torch.data.order.planning import plan_order
from dlio_torch.data.workers.placement import place_trainer
from dlio_torch.environment.cores import whole_cores
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.train.readers import reader_figures, thread_cpus

NAME = "placement"
AFFINITIES = ("none", "numa", "cores")
STARTS = ("fork", "forkserver", "spawn")
PREPROCESS = "0,0.0005"
SAMPLE = 40_000
BASELINES = {"dataloader": "dataloader, fork, none", "decoupled": "decoupled, threads, none"}


@dataclass(frozen=True)
class PlacedLoader:
    """Variant of the benchmark.

    Attributes:
        name: in the tables; begins with the engine.
        options: of ``loader``.
    """

    name: str
    options: dict[str, Any]

    @property
    def baseline(self) -> str:
        """Name of the variant that it is compared with."""
        return BASELINES[str(self.options["engine"])]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=0, help="worker processes or reader threads; 0: one per CPU")
    parser.add_argument("--bytes", type=int, default=0, help="bytes of an epoch; 0: 64 MiB, or 2 MiB with --quick")
    parser.add_argument("--preprocess", default="", help=f"CPU seconds of a sample, a table for each: {PREPROCESS}")
    parser.add_argument("--ways", default="", help="run only baselines and variants whose names contain this text")


def run(arguments: Namespace) -> Iterator[Part]:
    seconds = [float(text) for text in (arguments.preprocess or ("0" if arguments.quick else PREPROCESS)).split(",")]
    work = Work.of(SAMPLE, arguments.bytes or (2 << 20 if arguments.quick else 64 << 20), "shuffled", cold=False)
    chosen = [way for way in variants(arguments.workers or whole_cores()) if _is_chosen(way, arguments.ways)]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        data = Data(Path(folder), "npy", work)
        for each in seconds:
            say(f"{each:g} s of preprocessing for each sample")
            compute = ComputeConfig(preprocess_s=each)
            measures = {way.name: partial(_measured, data, way, compute) for way in chosen}
            found = interleave(measures, rounds_of(arguments))
            yield from (Missing(name, why, f"{each:g} s") for name, why in found.dropped.items())
            yield Table(
                NAME, list(_rows(found, chosen, each)), "Effect of placement and start method, page cache warm."
            )


def variants(readers: int) -> Iterator[PlacedLoader]:
    """Loaders to compare, the baselines first.

    Args:
        readers: worker processes or reader threads of each.
    """
    workers = {"engine": "dataloader", "num_workers": readers, "persistent_workers": True}
    for affinity in AFFINITIES:
        options = {**workers, "multiprocessing_context": "fork", "affinity": affinity}
        yield PlacedLoader(f"dataloader, fork, {affinity}", options)
    for start in STARTS[1:]:
        yield PlacedLoader(f"dataloader, {start}, none", {**workers, "multiprocessing_context": start})
    for affinity in AFFINITIES:
        options = {"engine": "decoupled", "read_threads": readers, "affinity": affinity}
        yield PlacedLoader(f"decoupled, threads, {affinity}", options)


def _is_chosen(way: PlacedLoader, text: str) -> bool:
    return text in way.name or way.name in BASELINES.values()


def _measured(data: Data, way: PlacedLoader, compute: ComputeConfig) -> Figures:
    config = replace(data.config, loader=LoaderConfig(**way.options), compute=compute)
    validate(config)
    placement = plan_placement(config, engines.facts(config.loader.engine).demand(config.loader), LocalRank())
    restore = place_trainer(placement)
    try:
        fmt = registry.create(config.dataset, config.seed, layout=config.loader.engine == "decoupled")
        order = plan_order(config, fmt, data.manifests, 0, 1)
        loader = assemble(config, fmt, data.manifests, order, NULL, placement=placement).train
        try:
            return _epochs(loader, config)
        finally:
            loader.close()
    finally:
        restore()


def _epochs(loader: BatchLoader, config: Config) -> Figures:
    """Rate of the second epoch, time until the first batch of the first one, and memory of a worker after both."""
    began = time.perf_counter()
    next(loader.epoch(0))
    started = time.perf_counter()
    batches = loader.epoch(1)
    threads, begin = thread_cpus(loader), time.perf_counter()
    for _ in range(len(loader)):
        next(batches)
        batches.read_on()
    rate = len(loader) * config.train.batch_size / (time.perf_counter() - begin)
    figures = reader_figures(loader, threads)
    if figures is None:
        raise Unavailable("it has neither workers nor reader threads")
    sizes = [size for size in figures.pss_bytes if size is not None]
    return {"samples_per_s": rate, "start_s": started - began, **({"pss_bytes": fmean(sizes)} if sizes else {})}


def _rows(found: Rounds, chosen: list[PlacedLoader], preprocess_s: float) -> Iterator[Row]:
    for way in chosen:
        if way.name not in found.figures:
            continue
        has_memory = all("pss_bytes" in figures for figures in found.figures[way.name])
        yield {
            "loader": way.name,
            "preprocessing (ms)": 1000 * preprocess_s,
            "samples/s": found.spread(way.name, "samples_per_s"),
            "of the baseline": found.ratio(way.name, "samples_per_s", way.baseline),
            "to the first batch (s)": found.spread(way.name, "start_s"),
            "memory of a worker (MB)": found.spread(way.name, "pss_bytes").scaled(1e-6) if has_memory else None,
        }


if __name__ == "__main__":
    alone(NAME)
