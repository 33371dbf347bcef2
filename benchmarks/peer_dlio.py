"""Compares this tool with the DLIO benchmark from PyPI: samples per second, start-up and generation.

Equal settings: files, samples, bytes of a sample, batch, epochs, order, worker processes, no compute, warm page
cache; each tool reads the files that it generated.  Its TFRecord reader is TensorFlow's, so NPZ, HDF5 and indexed
binary are compared.

samples/s     all epochs from start to end, as each tool records them
start-up      from the launch of the command to the begin of the first epoch
command       from launch to end, and the processor time of all its processes

What it needs to start is in ``benchmarks/peers/dlio.py``.
"""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, Stopwatch, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.peers.dlio import INSTALL, Dlio, Setting
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.order.planning import plan_order
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.recorder.spans import NULL

NAME = "peer_dlio"
PEER = "dlio-benchmark"
FORMATS = ("npz", "hdf5", "indexed_binary")
GENERATION = {"writing (s)": ("writing_s", False), "command (s)": ("s", True), "processor (s)": ("cpu_s", False)}
TRAINING = {
    "samples/s": ("samples_per_s", True),
    "start-up (s)": ("startup_s", True),
    "command (s)": ("s", False),
    "processor (s)": ("cpu_s", False),
}
"""Columns: the figure, and whether it is compared with the peer's."""

Ways = dict[str, Callable[[], Figures]]
ROOT = Path(__file__).resolve().parents[1]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dlio-python", metavar="PATH", help="Python interpreter that has dlio-benchmark installed")
    parser.add_argument("--formats", default=",".join(FORMATS), help="separated by commas")
    parser.add_argument("--workers", default="", help="numbers of worker processes: 0,2")
    parser.add_argument(
        "--ways", default="", help=("run only variants whose names contain one of these texts, separated by ;")
    )


def run(arguments: Namespace) -> Iterator[Part]:
    quick, rounds = arguments.quick, rounds_of(arguments, 3)
    workers = [int(number) for number in (arguments.workers or ("0" if quick else "0,2")).split(",")]
    wanted = [part for part in arguments.ways.split(";") if part]
    amount = {"files": 2 if quick else 8, "samples": 8 if quick else 64, "edge": 384, "batch": 8, "epochs": 2}
    settings = [
        Setting(format=fmt, workers=number, **amount)
        for fmt, number in itertools.product(arguments.formats.split(","), workers)
    ]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as made:
        folder = Path(made).resolve()
        peer = None
        try:
            if arguments.dlio_python is None:
                raise Unavailable(INSTALL)
            peer = Dlio(arguments.dlio_python, folder)
        except Unavailable as error:
            yield Missing(PEER, str(error))
        for setting in settings[:: len(workers)]:
            say(f"generating {setting.format}")
            found = interleave(_chosen(_generation(setting, folder, peer), wanted), rounds, warmups=0)
            yield from (Missing(name, why, setting.format) for name, why in found.dropped.items())
            title = f"Generation of {setting.files} files of {setting.samples} samples of {setting.size} bytes."
            yield Table("generation", list(_rows(found, {"format": setting.format}, GENERATION)), title)
        for setting in settings:
            where = f"{setting.format}, {setting.workers} workers"
            say(where)
            found = interleave(_chosen(_training(setting, folder, peer), wanted), rounds, warmups=0 if quick else 1)
            yield from (Missing(name, why, where) for name, why in found.dropped.items())
            title = f"Training of {setting.epochs} epochs with batches of {setting.batch} and no compute."
            which = {"format": setting.format, "workers": setting.workers}
            yield Table(NAME, list(_rows(found, which, TRAINING)), title)


def _chosen(ways: Ways, wanted: list[str]) -> Ways:
    return {name: way for name, way in ways.items() if not wanted or any(part in name for part in wanted)}


def _words(setting: Setting, folder: Path, *more: str) -> list[str]:
    """The setting as arguments of this tool."""
    return [
        "recipe=minimal", "scale=paper", f"dataset={setting.format}", "access=shuffled", "compute=none",
        "checkpoint=none", f"dataset.num_files={setting.files}", f"dataset.samples_per_file={setting.samples}",
        f"dataset.fields.0.shape=[{setting.edge},{setting.edge}]", "dataset.fields.0.dtype=uint8",
        f"train.batch_size={setting.batch}", f"train.epochs={setting.epochs}", "train.warmup_steps=0",
        "output.progress=false", "storage.limits=off", "cache=as_is", f"dataset.root={_ours(setting, folder)}", *more,
    ]  # fmt: skip


def _ours(setting: Setting, folder: Path) -> Path:
    """Folder of this tool's files of one format."""
    return folder / "ours" / setting.format


def _loaders(setting: Setting) -> dict[str, list[str]]:
    faithful = [f"loader.num_workers={setting.workers}"]
    return {"loader.engine=dataloader": faithful, "loader.engine=decoupled": ["loader=decoupled"]}


def _generation(setting: Setting, folder: Path, peer: Dlio | None) -> Ways:
    """Generates equal files again in each round; the last ones are used for training."""

    def theirs(tool: Dlio) -> Figures:
        shutil.rmtree(tool.data(setting), ignore_errors=True)
        return tool.generate(setting)

    def command() -> Figures:
        shutil.rmtree(_ours(setting, folder), ignore_errors=True)
        return _command("generate", _words(setting, folder))

    def by_itself() -> Figures:
        shutil.rmtree(_ours(setting, folder), ignore_errors=True)
        config = compose(_words(setting, folder)).config
        fmt = registry.create(config.dataset, config.seed)
        watch = Stopwatch()
        generate(config, fmt, SingleCommunicator(), NULL)
        seconds, cpu_s = watch.stop()
        return {"writing_s": seconds, "cpu_s": cpu_s}

    ways: Ways = {} if peer is None else {PEER: partial(theirs, peer)}
    return ways | {"python -m dlio_torch generate": command, "generation alone": by_itself}


def _training(setting: Setting, folder: Path, peer: Dlio | None) -> Ways:
    ways: Ways = {} if peer is None else {PEER: partial(peer.train, setting)}
    for name, loader in _loaders(setting).items():
        words = _words(setting, folder, *loader)
        ways[f"python -m dlio_torch, {name}"] = partial(_train, words, folder / "run", setting)
        ways[f"loader alone, {name}"] = partial(_load, words, setting)
    return ways


def _command(verb: str, words: list[str]) -> Figures:
    """Runs a verb of this tool in a new process."""
    watch = Stopwatch()
    done = subprocess.run(
        [sys.executable, "-m", "dlio_torch", verb, *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    seconds, cpu_s = watch.stop()
    if done.returncode:
        raise Unavailable(f"the command failed: {(done.stderr.strip().splitlines() or [''])[-1]}")
    return {"s": seconds, "cpu_s": cpu_s}


def _train(words: list[str], results: Path, setting: Setting) -> Figures:
    launched = time.perf_counter()  # the clock of steps.csv
    figures = _command("train", [*words, f"output.dir={results}"])
    summary = json.loads((results / "summary.json").read_text(encoding="utf-8"))
    with (results / "steps.csv").open(encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    shutil.rmtree(results)
    trained = sum(epoch["seconds"] for epoch in summary["epochs"][0])
    startup = float(first["start_s"]) - launched
    return {**figures, "samples_per_s": setting.trained / trained, "startup_s": startup}


def _load(words: list[str], setting: Setting) -> Figures:
    """Runs only the loader, in this process."""
    config = compose(words).config
    fmt = registry.create(config.dataset, config.seed, layout=config.loader.engine == "decoupled")
    manifests = generated_manifests(config, fmt)
    loader = assemble(config, fmt, manifests, plan_order(config, fmt, manifests, 0, 1), NULL).train
    try:
        watch = Stopwatch()
        for epoch in range(setting.epochs):
            batches: Any = loader.epoch(epoch)
            for batch in batches:
                del batch
        seconds, cpu_s = watch.stop()
    finally:
        loader.close()
    return {"samples_per_s": setting.trained / seconds, "cpu_s": cpu_s}


def _rows(found: Rounds, which: dict[str, Any], shown: dict[str, tuple[str, bool]]) -> Iterator[Row]:
    """Table rows, one per variant, with ratios to DLIO if it is available; figures may be missing."""
    for name, rounds in found.figures.items():
        cells: dict[str, Any] = {**which, "way": name}
        for column, (figure, compared) in shown.items():
            has = figure in rounds[0]
            cells[column] = found.spread(name, figure) if has else None
            if compared:
                beside = has and PEER in found.figures
                cells[f"{column} of {PEER}'s"] = found.ratio(name, figure, PEER) if beside else None
        yield cells


if __name__ == "__main__":
    alone(NAME)
