"""Compares saves of checkpoints with those of the DLIO benchmark at equal bytes: time, share of pickling, own share.

One rank saves the weights and the optimizer's state of the same transformer by the calls of DLIO and by each layout of
this tool, in turns; every file is flushed, and a save is over when it is durable.  What DLIO calls is in
``benchmarks/saving/dlio.py``.

bytes           of all files; ``safetensors``, which holds weights alone, saves a model of more layers
to DLIO         time for a byte over that of DLIO's ``torch.save`` in the same round; below 1: faster
serialising     processor time in user mode over the time of the save: pickling, checksums and copies, of all threads
kernel          processor time in the kernel, likewise; the rest of the save waits for the device
own (ms)        time of this tool's own code, outside of the calls of libraries and of the system, until training goes
                on: what a job without this tool would not do; an upper limit, the least of three more saves
own share       the same over the time until training goes on, median of the rounds

The table ``dcp`` has the same save by ``torch.distributed.checkpoint`` without this tool, and ways to write that a user
may choose.  In ``part_of_a_job`` one rank of many saves.  It is the coordinator: the plan of all ranks, and pickling
their entries of ``.metadata``, is work of the real job's coordinator, too, and counts as the library's.  The plans and
entries of the ranks without a process are this tool's work, which the real job's coordinator would receive; they are
made before the first save.

``consolidation_ranks`` has the time of making whole safetensors files of the parts of eight ranks, by one rank or more,
with one thread or more each.  The processor time of the rank that takes most tells how the work is divided where ranks
share cores.  Published (torchtitan pull request 1625): 20 s by the first of 8 ranks became 10 s by all
of them, for an 8B model.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.saving.consolidation import FILES, PARTS, WAYS, consolidations, way_name
from benchmarks.saving.dlio import Pieces, TorchSave
from benchmarks.saving.ours import Ours
from benchmarks.saving.plain_dcp import PlainDcp
from dlio_torch.checkpoint.job.parameters import parameter_count
from dlio_torch.checkpoint.job.saved_state import ELEMENT_BYTES, job_bytes
from dlio_torch.config.schema_model import ModelConfig
from dlio_torch.units import format_size

NAME = "checkpoints"
PEER = "DLIO, torch.save"
STREAM = "DLIO, pieces of 32 MiB"
PLAIN = "torch.distributed.checkpoint"
MODEL = ModelConfig(
    hidden_size=1024,
    num_layers=1,
    num_heads=8,
    num_kv_heads=8,
    ffn_hidden_size=2816,
    vocab_size=4096,
    dtype="bfloat16",
    master_weights=True,
)
"""8 million elements in both token tables, 13 million in each layer; 14 bytes each."""

QUICK = dataclasses.replace(MODEL, hidden_size=128, ffn_hidden_size=352, vocab_size=512)

WEIGHTS = "safetensors"
"""A layout that saves the weights alone."""

DESCRIBED = ("torch_save", "megatron_deepspeed", "dcp", WEIGHTS)
"""Layouts that save the tensors of a described model."""

_WHOLE, _THREADS = "checkpoint.consolidate=true", "checkpoint.consolidate_threads"
VARIANTS: dict[str, dict[str, tuple[str, list[str]]]] = {
    "asynchronous saves": {name: ("dcp", [f"checkpoint.async_save={name}"]) for name in ("none", "thread", "process")},
    "plan cache": {
        name: ("dcp", [f"checkpoint.plan_cache={value}"]) for name, value in (("off", "false"), ("on", "true"))
    },
    "part of a job": {
        name: ("dcp", ["parallel.fsdp=full", f"parallel.data={ranks}", f"checkpoint.plan_cache={cached}"])
        for name, ranks, cached in (
            ("1 of 8 ranks", 8, "false"),
            ("1 of 64 ranks", 64, "false"),
            ("1 of 64 ranks, plan cache", 64, "true"),
        )
    },
    "dcp": {
        "dcp": ("dcp", []),
        "2 threads": ("dcp", ["checkpoint.thread_count=2"]),
        "4 threads": ("dcp", ["checkpoint.thread_count=4"]),
        "a file a tensor": ("dcp", ["checkpoint.single_file_per_rank=false"]),
    },
    "consolidation": {
        name: (WEIGHTS, ["checkpoint.ranks=all", "checkpoint.shard_bytes=16MB", *words])
        for name, words in (("none", []), ("1 thread", [_WHOLE]), ("4 threads", [_WHOLE, f"{_THREADS}=4"]))
    },
}
"""Layout and options of the ways of each further table, the baseline first."""

PART, DCP, CONSOLIDATION = "part of a job", "dcp", "consolidation_ranks"
PART_LAYERS = 32
"""Layers of the model that a part of a job saves: as many tensors as Llama 3 8B has."""

Ways = dict[str, Callable[[], Figures]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=1, help="transformer layers, each of 180 MB of state")


def run(arguments: Namespace) -> Iterator[Part]:
    model = QUICK if arguments.quick else dataclasses.replace(MODEL, num_layers=arguments.layers)
    rounds = rounds_of(arguments, 5)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as made:
        yield from _layouts(model, Path(made), rounds)
        for table, variants in VARIANTS.items():
            large = table == PART and not arguments.quick
            saved = dataclasses.replace(model, num_layers=PART_LAYERS) if large else model
            yield from _variants(table, variants, saved, Path(made), rounds)
        yield from _consolidation(model, Path(made), rounds)


def model_words(model: ModelConfig) -> list[str]:
    """The model as options of a command line."""
    values = dataclasses.asdict(model).items()
    return [f"model.{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in values]


def _layouts(model: ModelConfig, folder: Path, rounds: int) -> Iterator[Part]:
    say(f"layouts, {format_size(job_bytes(model))}")
    opened = yield from _open(_described(model) | _sized(model), folder)
    ways: Ways = {PEER: _peer(TorchSave(model), folder), STREAM: _peer(Pieces(model), folder)}
    measured = interleave({**ways, **_ways(opened)}, rounds)
    own = _own_s(opened, measured)
    yield from _missing(measured, NAME)
    title = f"Saves of a model whose state has {format_size(job_bytes(model))}, with fsync."
    yield Table(NAME, [_layout_row(measured, name, own.get(name)) for name in measured.figures], title)
    _close(opened)


def _described(model: ModelConfig) -> dict[str, tuple[str, list[str]]]:
    """Layouts of the model; of one with more layers where the weights alone are saved."""
    words = {name: (name, model_words(model)) for name in DESCRIBED}
    return {**words, WEIGHTS: (WEIGHTS, model_words(weights_model(model)))}


def weights_model(model: ModelConfig) -> ModelConfig:
    """The model with as many layers as give its weights about the bytes of the state of ``model``."""
    one, two = (parameter_count(dataclasses.replace(model, num_layers=layers)) for layers in (1, 2))
    elements = job_bytes(model) // ELEMENT_BYTES[model.dtype]
    return dataclasses.replace(model, num_layers=1 + round((elements - one) / (two - one)))


def _sized(model: ModelConfig) -> dict[str, tuple[str, list[str]]]:
    """Layouts of files of a given size: the bytes of the model."""
    size = job_bytes(model)
    files = f"[{{name: 'model-{{step}}', bytes: {size}, write_bytes: 32MiB}}]"
    return {
        "torch_save, state_bytes": ("torch_save", [f"checkpoint.state_bytes={size}"]),
        "files": ("files", [f"checkpoint.files={files}"]),
    }


def _variants(
    table: str, variants: Mapping[str, tuple[str, list[str]]], model: ModelConfig, folder: Path, rounds: int
) -> Iterator[Part]:
    say(table)
    words = model_words(model)
    opened = yield from _open(
        {name: (layout, [*words, *more]) for name, (layout, more) in variants.items()}, folder, table
    )
    with _peers(table, model, folder) as peers:
        measured = interleave({**peers, **_ways(opened)}, rounds)
    own = _own_s(opened, measured)
    yield from _missing(measured, table)
    baselines = [name for name in peers or list(opened)[:1] if name in measured.figures]
    rows = [_variant_row(table, measured, name, baselines, own.get(name)) for name in measured.figures]
    if rows:
        yield Table(table.replace(" ", "_"), rows, f"Ways to save: {table}.")
    _close(opened)


def _variant_row(table: str, measured: Rounds, name: str, baselines: list[str], own_s: float | None) -> Row:
    return {
        table: name,
        "plan (s)": measured.spread(name, "plan_s") if "plan_s" in measured.figures[name][0] else None,
        "stall (s)": measured.spread(name, "stall_s"),
        "durable (s)": measured.spread(name, "durable_s"),
        **{f"stall to {other}": measured.ratio(name, "stall_s", other) for other in baselines},
        **{f"durable to {other}": measured.ratio(name, "durable_s", other) for other in baselines},
        "bytes": int(measured.values(name, "bytes")[0]),
        **_own_figures(measured, name, own_s),
    }


def _consolidation(model: ModelConfig, folder: Path, rounds: int) -> Iterator[Part]:
    say(CONSOLIDATION)
    saved = weights_model(model)
    size = parameter_count(saved) * ELEMENT_BYTES[saved.dtype]
    words = [*model_words(saved), f"checkpoint.shard_bytes={size // FILES * 11 // 10}"]
    try:
        measured = consolidations(words, folder, rounds)
    except Unavailable as error:
        yield Missing(CONSOLIDATION, str(error), CONSOLIDATION)
        return
    baseline = way_name(*WAYS[0])
    rows: list[Row] = [
        {
            "ranks and threads": name,
            "consolidation (s)": measured.spread(name, "s"),
            f"{baseline} to this": measured.ratio(baseline, "s", name),
            "processor, slowest rank (s)": measured.spread(name, "cpu_s"),
        }
        for name in measured.figures
    ]
    title = f"Consolidation of the parts of {PARTS} ranks, {format_size(size)}, into about {FILES} files."
    yield Table(CONSOLIDATION, rows, title)


@contextmanager
def _peers(table: str, model: ModelConfig, folder: Path) -> Iterator[Ways]:
    """Saves without this tool of the same state, with which the ways of a table are compared."""
    if table != DCP:
        yield {}
        return
    plain = PlainDcp(model)
    yield {PEER: _peer(TorchSave(model), folder), PLAIN: _peer(plain, folder)}
    plain.close()


def _own_s(opened: Mapping[str, Ours], measured: Rounds) -> dict[str, float]:
    """Seconds of this tool's own code in a save of each layout that was measured."""
    return {name: min(ours.own_s() for _ in range(3)) for name, ours in opened.items() if name in measured.figures}


def _own_figures(measured: Rounds, name: str, own_s: float | None) -> Row:
    if own_s is None:
        return {"own (ms)": None, "own share": None}
    return {"own (ms)": own_s * 1e3, "own share": own_s / measured.spread(name, "stall_s").median}


def _open(wanted: Mapping[str, tuple[str, list[str]]], folder: Path, where: str = NAME) -> Iterator[Part]:
    """Opens the layouts that are there, and yields what is missing; returns those that were opened."""
    opened: dict[str, Ours] = {}
    for name, (layout, words) in wanted.items():
        try:
            opened[name] = Ours(layout, words, folder)
        except Unavailable as error:
            yield Missing(name, str(error), where)
    return opened


def _peer(peer: TorchSave | Pieces | PlainDcp, folder: Path) -> Callable[[], Figures]:
    def save() -> Figures:
        figures = peer.save(folder / "dlio").figures()
        shutil.rmtree(folder / "dlio")
        return figures

    return save


def _ways(opened: Mapping[str, Ours]) -> Ways:
    return {name: lambda ours=ours: ours.save().figures() for name, ours in opened.items()}


def _missing(measured: Rounds, where: str) -> Iterator[Part]:
    yield from (Missing(name, why, where) for name, why in measured.dropped.items())


def _layout_row(measured: Rounds, name: str, own_s: float | None) -> Row:
    return {
        "way": name,
        "files": int(measured.values(name, "files")[0]),
        "bytes": int(measured.values(name, "bytes")[0]),
        "save (s)": measured.spread(name, "durable_s"),
        "GB/s": measured.spread(name, "gb_per_s"),
        "to DLIO": measured.ratio(name, "s_per_byte", PEER),
        "serialising": measured.spread(name, "serialising"),
        "kernel": measured.spread(name, "kernel"),
        **_own_figures(measured, name, own_s),
    }


def _close(opened: Mapping[str, Ours]) -> None:
    for ours in opened.values():
        ours.close()


if __name__ == "__main__":
    alone(NAME)
