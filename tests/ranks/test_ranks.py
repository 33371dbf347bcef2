"""Whole runs on several ranks, under both launchers: who reads what, who speaks, how they end together."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from figure_checks import check_figures
from overrides import overridden
from ranks import Ended, Kind, need_horovod, run_launcher, run_ranks

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.order.planning import plan_order
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.batch import INDEX
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.steps import WARMUP, read_steps

KINDS = [pytest.param("torch"), pytest.param("horovod", marks=pytest.mark.horovod)]
OPTIONS = (
    *("recipe=minimal", "scale=paper", "dataset.samples_per_file=8", "dataset.fields.0.shape=[8,8]", "train.epochs=2"),
    *("compute.step_s=2ms", "output.dir=run"),
)

# Rank 1 gets arguments of its own, as a user has it whose nodes hold different files.
PROGRAM = """
import os, sys
from dlio_torch.cli import main
rank = os.environ.get("RANK", os.environ.get("HOROVOD_RANK"))
own = os.environ["ON_RANK_1"].split() if rank == "1" else []
keys = {word.partition("=")[0] for word in own}
sys.exit(main([word for word in sys.argv[1:] if word.partition("=")[0] not in keys] + own))
"""


def run(kind: Kind, world_size: int, folder: Path, *arguments: str, on_rank_1: str = "") -> list[Ended]:
    program = ["-c", PROGRAM] if on_rank_1 else ["-m", "dlio_torch"]
    environ = {"ON_RANK_1": on_rank_1}
    ended = run_ranks(kind, world_size, [*program, *arguments], cwd=folder, env=environ, timeout_s=90)
    assert all(rank.running == () for rank in ended)
    return ended


def summary_of(folder: Path) -> dict[str, Any]:
    directory = RunDir(folder / "run")
    assert directory.missing() == ()
    found: dict[str, Any] = directory.read_json(directory.summary)
    check_figures(found)
    return found


def said(rank: Ended) -> list[str]:
    """What a rank complained about.

    From our own words on: gloo, whose threads write to the same stderr a character at a time, may have put a "["
    before them.
    """
    return [line.removeprefix("dlio_torch: error: ") for line in re.findall(r"dlio_torch: .*", rank.stderr)]


@pytest.mark.ranks
@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_share_the_data_and_rank_0_reports(kind: Kind, tmp_path: Path) -> None:
    arguments = [*OPTIONS, "verify=true", "train.allreduce_bytes=64KiB", "loader.read_threads=1"]
    first, second = run(kind, 2, tmp_path, *arguments)
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr + second.stderr
    assert "2 ranks" in first.stdout
    assert "Results: " in first.stdout
    assert second.stdout == ""
    assert [line for line in second.stderr.splitlines() if "dlio_torch" in line or "data:" in line] == []
    summary = summary_of(tmp_path)
    assert summary["world_size"] == 2
    settings = summary["ranks_by"].pop("settings")
    assert summary["ranks_by"] == {"backend": kind, "detail": "gloo"}
    assert bool(settings) == (kind == "horovod")
    # 4 files of 8 samples, two epochs; the first step of each rank is warm-up.
    assert summary["verified_samples"] == 64
    assert summary["warmup"]["samples"] == 2 * 4
    assert summary["train"]["samples"] == 64 - 2 * 4
    assert [row["samples"] for row in summary["ranks"]] == [28, 28]
    assert summary["train"]["bytes"] == summary["train"]["samples"] * 8 * 8 * 4
    assert summary["generate"]["written"] == 4
    assert summary["step"]["allreduce_s"]["median"] > 0
    steps = read_steps(tmp_path / "run" / "steps.csv")
    assert sorted(steps) == [0, 1]
    for rank in steps.values():
        assert len(rank) == 8
        assert np.all(rank[rank["phase"] != WARMUP]["allreduce_ns"] > 0)
    table = read_events(tmp_path / "run" / "events")
    assert {process.rank for process in table.processes} == {0, 1}
    assert Counter(table.frame[table.frame["op"] == "allreduce"]["rank"]) == {0: 8, 1: 8}
    # Each rank writes its share of the files.
    assert Counter(table.frame[table.frame["op"] == "generate"]["rank"]) == {0: 2, 1: 2}


@pytest.mark.ranks
@pytest.mark.parametrize("kind", ["torchrun", pytest.param("horovodrun", marks=pytest.mark.horovod)])
def test_the_launchers_start_a_run(kind: Literal["torchrun", "horovodrun"], tmp_path: Path) -> None:
    if kind == "horovodrun":
        need_horovod()
    arguments = [*OPTIONS, "verify=true", "train.batch_size=8", "train.batch_scope=global"]
    ended = run_launcher(kind, 2, ["-m", "dlio_torch", *arguments], cwd=tmp_path, timeout_s=90)
    assert ended.exit_code == 0, ended.stderr
    assert (ended.stdout + ended.stderr).count("Results: ") == 1
    summary = summary_of(tmp_path)
    assert summary["world_size"] == 2
    assert summary["verified_samples"] == 64
    assert summary["train"]["samples"] + summary["warmup"]["samples"] == 64


@pytest.mark.ranks
@pytest.mark.parametrize("kind", KINDS)
def test_four_ranks_read_each_sample_the_right_number_of_times(kind: Kind, tmp_path: Path) -> None:
    # 13 files of 3 samples among 4 ranks: shares of 4, 3, 3 and 3 files, 12 samples at most.
    files = ["dataset.num_files=13", "dataset.samples_per_file=3", "access.partition=files", "access.tail=pad"]
    loop = ["train.epochs=3", "train.batch_size=2", "train.allreduce_bytes=1KiB", "compute.mode=none"]
    settings = overridden(*OPTIONS, *files, *loop, "verify=true", "trace.spans=false")
    ended = run(kind, 4, tmp_path, *settings)
    assert [rank.exit_code for rank in ended] == [0, 0, 0, 0], ended[0].stderr
    steps = read_steps(tmp_path / "run" / "steps.csv")
    assert {rank: len(one) for rank, one in steps.items()} == dict.fromkeys(range(4), 18)
    summary = RunDir(tmp_path / "run").read_json(tmp_path / "run" / "summary.json")
    assert summary["verified_samples"] == 3 * 4 * 12


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("kind", "argument", "why"),
    [
        pytest.param("torch", "train.epochs=3", "rank 1 was started with train.epochs=3, rank 0 with 2;"),
        # This rank ends before it would meet the others, which would wait for it.
        pytest.param("horovod", "train.epochs=many", "train.epochs=many (command line): ", marks=pytest.mark.horovod),
    ],
)
def test_different_options_end_all_ranks(kind: Kind, argument: str, why: str, tmp_path: Path) -> None:
    ended = run(kind, 2, tmp_path, *OPTIONS, on_rank_1=argument)
    assert [rank.exit_code for rank in ended] == [2, 2]
    lines = said(ended[0]) + said(ended[1])
    assert len(lines) == 1
    assert lines[0].startswith(f"rank 1 failed: {why}")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.ranks
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_fails_in_a_step_ends_the_others(kind: Kind, tmp_path: Path) -> None:
    shares = ["access.partition=files", "access.order=sequential", "train.allreduce_bytes=1KiB"]
    made = run("single", 1, tmp_path, "generate", *OPTIONS)
    assert made[0].exit_code == 0, made[0].stderr
    last = next(tmp_path.glob("data/*/train/train_0000003.h5"))
    content = bytearray(last.read_bytes())
    content[-8] ^= 1  # of the last sample of rank 1; rank 0 waits for it in the allreduce
    last.write_bytes(content)
    ended = run(kind, 2, tmp_path, "train", *OPTIONS, *shares, "verify=true")
    assert [rank.exit_code for rank in ended] == [3, 3]
    for rank in ended:
        assert len(said(rank)) == 1
        assert "train_0000003.h5: sample 7 differs from the generated content in array" in said(rank)[0]
        assert "Traceback" not in rank.stderr
    assert said(ended[0])[0].startswith("rank 1 failed: ")
    # Both ranks had done three steps, and the one that failed has written them down.
    assert len(read_steps(tmp_path / "run" / "steps.rank1.csv")[1]) == 3
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.ranks
def test_a_missed_threshold_is_known_to_all_and_said_once(tmp_path: Path) -> None:
    ended = run("torch", 2, tmp_path, *OPTIONS, "train.min_au=1")
    assert [rank.exit_code for rank in ended] == [4, 4]
    assert len(said(ended[0])) == 1
    assert "train.min_au=1" in said(ended[0])[0]
    assert said(ended[1]) == []
    assert summary_of(tmp_path)["au"]["mean"] < 1


@pytest.mark.ranks
def test_only_the_first_rank_evaluates_where_the_recipe_says_so(tmp_path: Path) -> None:
    evaluation = ["dataset.num_files_eval=1", "dataset.samples_per_file_eval=8", "train.eval_every_steps=3"]
    ended = run("torch", 2, tmp_path, *OPTIONS, *evaluation, "train.eval_ranks=first", "train.allreduce_bytes=1KiB")
    assert [rank.exit_code for rank in ended] == [0, 0], ended[0].stderr
    steps = read_steps(tmp_path / "run" / "steps.csv")
    # 8 training steps; after the 3rd and the 6th the first rank reads two batches of 4.
    assert (len(steps[0]), len(steps[1])) == (8 + 4, 8)
    assert summary_of(tmp_path)["eval"]["samples"] == 16


BATCHES = (1, 4, 7, 16)


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("files", [13, 24, 25, 145])
@pytest.mark.parametrize("partition", ["batches", "slices", "files"])
def test_any_number_of_files_any_batch_any_ranks(partition: str, files: int, world_size: int) -> None:
    samples = files * 3
    recipe = ["recipe=self_test", "scale=paper", f"dataset.num_files={files}", "dataset.samples_per_file=3"]
    access = [f"access.partition={partition}", "access.order=shuffled", "train.steps=0", "train.batch_size=1"]
    base = compose([*recipe, *access], world_size=world_size).config
    for batch_size in BATCHES:
        for tail in ("drop", "pad"):
            config = replace(
                base,
                access=replace(base.access, tail=tail),
                loader=replace(base.loader, read_threads=batch_size % 3),
                train=replace(base.train, batch_size=batch_size, epochs=3),
            )
            fmt = registry.create(config.dataset, config.seed)
            manifests = generated_manifests(config, fmt)
            try:
                orders = [plan_order(config, fmt, manifests, rank, world_size) for rank in range(world_size)]
                ranks = [assemble(config, fmt, manifests, order, NULL) for order in orders]
            except ConfigError:
                # Only a batch that no rank, or not every rank, can fill is refused.
                smallest = files // world_size * 3 if partition == "files" else samples // world_size
                assert tail == "drop"
                assert batch_size > smallest
                continue
            assert len({len(rank.train) for rank in ranks}) == 1  # nobody waits for a rank that is done
            for epoch in range(3):
                seen = np.zeros(samples, int)
                for rank in ranks:
                    for batch in rank.train.epoch(epoch):
                        assert len(batch[INDEX]) == batch_size
                        np.add.at(seen, batch[INDEX].numpy(), 1)
                total = len(ranks[0].train) * batch_size * world_size
                assert seen.sum() == total
                if tail == "drop":
                    assert seen.max() == 1
                else:
                    assert seen.min() >= 1
            for rank in ranks:
                rank.close()
