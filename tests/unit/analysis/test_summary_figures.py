"""Figures of ``summary.json``: documented, and null where their source is not there; 0 never says "not measured"."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from figure_checks import check_figures, values

import dlio_torch
from dlio_torch import cli
from dlio_torch.analysis import summary_figures
from dlio_torch.iotrace.recorder.io_counters import IoCounters

PACKAGE = Path(dlio_torch.__file__).parent
RECIPE = """
description: a recipe of a test
defaults: [{dataset: npy}, {access: shuffled}, {compute: sleep}, {checkpoint: torch_save}]
dataset: {num_files: 8, samples_per_file: 1, fields: [{name: x, dtype: uint8, shape: [5000]}]}
train: {epochs: 2, batch_size: 2, warmup_steps: 1, allreduce_bytes: 4KiB}
checkpoint: {every_steps: 2, state_bytes: 4KiB, mtbf_s: 1h}
compute: {step_s: 0.1ms}
"""
STATISTICS = ("mean", "min", "median", "p95", "max")
GOODPUT = ("lost_share", "best_interval_s", "interval_s", "lost_share_at_interval")
COUNTED = ("rchar_bytes", "read_bytes", "device_read_share")


def steadily() -> Callable[..., IoCounters]:
    """Counters of which each is larger than the one before."""
    counts = iter(range(1, 1000))
    return lambda begins=False: IoCounters(*[1000 * next(counts)] * 6)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """``told(*options)``: the summary of a run; all sources tell something unless the test takes them away."""
    (tmp_path / "mine.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dlio_torch.train.trainer.tree_counters", steadily())
    monkeypatch.setattr("dlio_torch.execution.summary.counts_device", lambda mount: True)
    monkeypatch.setattr("dlio_torch.analysis.cache.counts_device", lambda mount: True)
    monkeypatch.setattr(
        "dlio_torch.storage.local.cache_process.cached_shares", lambda paths, probes: [(0.25, 1 << 20)] * len(paths)
    )

    def run(*options: str) -> dict[str, Any]:
        command = ["recipe=./mine.yaml", "scale=paper", "output.dir=run", "output.progress=false", *options]
        assert cli.main(command) == 0
        found: dict[str, Any] = json.loads(Path("run/summary.json").read_text())
        check_figures(found)
        return found

    return run


# What takes a source away, as options or as what stands in its place, and the figures that it alone can tell.
SOURCES: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "the kernel's counters": (
        [],
        {"dlio_torch.train.trainer.tree_counters": lambda begins=False: None},
        [
            *(f"io.{name}" for name in COUNTED),
            *(f"cache.epochs.{name}" for name in COUNTED),
            "io.per_rank.rchar",
            "io.per_rank.from_device",
            "reads.bytes_per_sample",
            "reads.calls_per_sample",
            "reads.mean_bytes",
            "epochs.io",
            *("storage.bytes_per_s", "storage.request_bytes"),
        ],
    ),
    "a device that is counted": (
        [],
        {
            "dlio_torch.execution.summary.counts_device": lambda mount: False,
            "dlio_torch.analysis.cache.counts_device": lambda mount: False,
        },
        [
            "io.read_bytes",
            "io.device_read_share",
            "io.per_rank.read_bytes",
            "io.per_rank.from_device",
            "cache.epochs.read_bytes",
            "cache.epochs.device_read_share",
            "epochs.io.read_bytes",
        ],
    ),
    "a page cache that tells": (
        [],
        {"dlio_torch.storage.local.cache_process.cached_shares": lambda paths, probes: [None] * len(paths)},
        ["io.cached_share_before", "io.per_rank.cached_share", "cache.prepared.cached_share"],
    ),
    "idle ticks": ([], {"dlio_torch.train.trainer.idle_core_s": lambda cpus: None}, ["epochs.idle_cores"]),
    "spans": (["trace.spans=false"], {}, ["stalls", "overlap", "posix", "au_of_storage.mean"]),
    "compute": (
        ["compute=none"],
        {},
        [
            *("au.mean", "au.min", "au.per_rank", "au_of_storage.mean", "au_of_storage.min", "au_of_storage.source"),
            *("step.compute_s", "shares.compute", "ranks.compute_s", "compute_error"),
        ],
    ),
    "an exchange": (["train.allreduce_bytes=0"], {}, ["step.allreduce_s", "shares.allreduce", "ranks.allreduce_s"]),
    "checkpoints": (
        ["checkpoint=none"],
        {},
        [
            *("step.checkpoint_s", "shares.checkpoint", "ranks.checkpoint_s", "checkpoints.duration_s"),
            *(f"goodput.{name}" for name in GOODPUT),
            "goodput.inputs",
        ],
    ),
    "a time between failures": (
        ["checkpoint.mtbf_s=0"],
        {},
        [f"goodput.{name}" for name in GOODPUT if name != "interval_s"],
    ),
    "measured steps": (
        ["train.warmup_steps=100"],
        {},
        [
            *(f"train.{name}" for name in ("elapsed_s", "samples_per_s", "mib_per_s")),
            *("step.duration_s", "step.fetch_s", "shares.fetch", "shares.other", "shares.between_epochs"),
            *("au.mean", "ranks.elapsed_s", "ranks.fetch_s", "ranks.au"),
        ],
    ),
    "a step after another": (
        ["train.warmup_steps=3", "train.epochs=1"],
        {},
        ["step.other_s", "shares.other", "ranks.other_s"],
    ),
    "files": (
        ["dataset=synthetic"],
        {},
        [*(f"io.{name}" for name in COUNTED), "reads.bytes_per_sample", "reads.calls_per_sample", "cache", "generate"],
    ),
    "what was not asked for": (
        [],
        {},
        ["stage", "load.seconds", "load.bytes", "restore.seconds", "verified_samples", "posix", "mpi_io", "copies"],
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_not_measured_is_null(
    source: str, told: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, instead, expected = SOURCES[source]
    for name, value in instead.items():
        monkeypatch.setattr(name, value)
    summary = told(*options)
    for path in expected:
        found = values(summary, path)
        assert found, path
        assert set(map(str, found)) == {"None"}, f"{path} without {source}"


def test_what_is_measured_is_not_null(told: Callable[..., dict[str, Any]]) -> None:
    """The figures of the test above come with their sources: their names are right, and they can be told apart."""
    summary = told()
    for source, (_, _, expected) in SOURCES.items():
        for path in expected:
            # An epoch of some milliseconds is below the tick of idle time; the rest needs an option of its own.
            if source in ("what was not asked for", "idle ticks") or path == "posix":
                continue
            assert None not in values(summary, path), path


def test_a_figure_without_a_name_or_that_cannot_be_0_is_found() -> None:
    check_figures({"train": {"steps": 0, "elapsed_s": None}})
    with pytest.raises(AssertionError, match=r"train\.elapsed_s of summary\.json is 0"):
        check_figures({"train": {"elapsed_s": 0.0}})
    with pytest.raises(AssertionError, match=r"ranks\.speed of summary\.json is not in"):
        check_figures({"ranks": [{"speed": 1}]})


def test_zero_is_said_in_words_that_mean_a_zero() -> None:
    for figure in summary_figures.figures():
        assert figure.meaning
        assert not re.search(r"not measured|unknown|not known", figure.zero or ""), figure.name


# The modules whose dictionaries become summary.json.
PRODUCERS = (
    *("analysis/collect", "analysis/step_metrics", "analysis/rank_steps", "analysis/cache", "analysis/stalls"),
    *("analysis/storage_share", "analysis/storage_utilisation", "iotrace/figures/overlap", "analysis/mpiio_requests"),
    *("analysis/loader_limit", "analysis/goodput_inputs", "checkpoint/goodput"),
    *("analysis/checkpoint_figures", "analysis/distribution"),
)


def _zero(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


def stand_ins(path: Path) -> Iterator[str]:
    """Where a 0 is put in the place of something that may be missing: ``x or 0``, ``.get(x, 0)``, a default of 0."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        last = None
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            last = node.values[-1]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            last = node.args[1] if len(node.args) == 2 else None
        elif isinstance(node, ast.AnnAssign):
            last = node.value
        if _zero(last):
            yield f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("name", PRODUCERS)
def test_no_zero_stands_for_what_is_missing(name: str) -> None:
    assert list(stand_ins(PACKAGE / f"{name}.py")) == []


def test_a_stand_in_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = b or 0\nc = d.get('e', 0.0)\nf: int = 0\ng = b or 1\nh = False\n")
    assert sorted(stand_ins(tmp_path / "a.py")) == ["a.py:1", "a.py:2", "a.py:3"]


@pytest.mark.parametrize(
    ("key", "begins"),
    [
        (
            "summary.train.samples_per_s",
            "summary.train.samples_per_s [1/s]: sample rate in measured training steps, all ranks: train.samples / "
            "train.elapsed_s\n  cannot be 0;",
        ),
        (
            "summary.ranks.fetch_s",
            "summary.ranks.fetch_s [s]: mean time of this part of a step, over this rank's measured steps\n  0: ",
        ),
        ("summary.io", "summary.io.rchar_bytes [B]: "),
        ("summary", "summary.seed: "),
    ],
)
def test_figures_are_explained(key: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", key]) == 0
    # Long lines are wrapped.
    assert " ".join(capsys.readouterr().out.split()).startswith(" ".join(begins.split()))


def test_figures_are_explained_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "summary.saved", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["figures"]] == [
        "saved.checkpoints",
        "saved.bytes",
    ]


def test_a_figure_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "summary.trainn.samples"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("dlio_torch: error: explain summary.trainn.samples: no such figure")
