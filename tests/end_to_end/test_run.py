"""Whole runs of one process: what they print, leave behind and count."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_checks import check_figures
from ranks import Ended, run_ranks
from trace_tracks import overlaps, tracks

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.iotrace.events.event_table import EventTable, read_events
from dlio_torch.iotrace.timeline.chrome_trace import AMOUNTS
from dlio_torch.ownership.names import FileNames
from dlio_torch.ownership.run_files import RUN_FILES
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.order import OrderChecksum
from dlio_torch.train.steps import EVAL, TRAIN, WARMUP, Steps, read_steps

RECIPE = """
description: a recipe of a test
defaults:
  - dataset: hdf5
  - access: shuffled
  - compute: sleep
dataset:
  num_files: 3
  samples_per_file: 8
  num_files_eval: 1
  samples_per_file_eval: 6
  fields:
    - {name: images/data, shape: [16, 16]}
train: {epochs: 2, batch_size: 4, eval_every_epochs: 1, eval_batch_size: 2, allreduce_bytes: 4KiB}
compute: {step_s: 3ms, eval_step_s: 1ms, preprocess_s: 0.2ms}
expect:
  - {metric: reads.samples, value: 24, tolerance: 2.0, source: "a test"}
  - {metric: train.samples, value: 1000, tolerance: 0.1, source: "another test"}
"""


@dataclass(frozen=True)
class Done:
    """A run that has ended, and what it left."""

    ended: Ended
    directory: RunDir

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self.directory.read_json(self.directory.summary)
        check_figures(found)
        return found

    @property
    def steps(self) -> Steps:
        return read_steps(self.directory.steps())[0]

    @property
    def events(self) -> EventTable:
        return read_events(self.directory.events)


def dlio(folder: Path, *arguments: str, name: str = "run") -> Done:
    """``python -m dlio_torch`` in ``folder``, its run directory being ``folder/name``."""
    directory = folder / name
    command = ["-m", "dlio_torch", *arguments, f"output.dir={directory}"]
    ended = run_ranks("single", 1, command, cwd=folder, env={"COLUMNS": "160"})[0]
    return Done(ended, RunDir(directory))


def in_process(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    return cli.main(arguments)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Workers, evaluation after epochs, the five files of the DLIO paper, torch.profiler, verified."""
    folder = tmp_path_factory.mktemp("everything")
    (folder / "mine.yaml").write_text(RECIPE)
    return dlio(
        folder,
        "recipe=./mine.yaml",
        "scale=paper",
        "verify=true",
        "loader.num_workers=1",
        "checkpoint=dlio",
        "checkpoint.every_steps=4",
        "checkpoint.keep=0",
        "trace.profiler=true",
        "trace.profiler_steps=3",
    )


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The shipped recipe: a reader thread, the first rank evaluates every n steps, one restore."""
    return dlio(
        tmp_path_factory.mktemp("application"),
        "recipe=cosmic_tagger",
        "scale=tiny",
        "--verbose",
        "verify=true",
        "train.eval_every_steps=4",
        "checkpoint.every_steps=3",
        "checkpoint.files=[{name: 'model_{step}', bytes: 64KiB, write_bytes: 4KiB}, {name: checkpoint, bytes: 10}]",
        "checkpoint.restore_read_bytes=16KiB",
    )


def test_a_run_ends_well(everything: Done, application: Done) -> None:
    for done in (everything, application):
        assert done.ended.exit_code == 0, done.ended.stderr
        assert done.ended.running == ()
        assert "Traceback" not in done.ended.stderr
        assert done.directory.missing() == ()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="the extra 'tensorboard' is not installed")
def test_tensorboard_shows_the_steps(everything: Done) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = EventAccumulator(str(everything.directory.tensorboard / "rank0"), {"tensors": 0}).Reload()
    curves = {tag: written.Tensors(tag) for tag in written.Tags()["tensors"]}
    assert sorted(curves) == [
        "accelerator/utilisation", "step/bytes", "step/duration_s", "step/wait_for_data_s", "throughput/bytes_per_s",
        "throughput/samples_per_s",
    ]  # fmt: skip
    summary = everything.directory.read_json(everything.directory.summary)
    values = {tag: [float(point.tensor_proto.float_val[0]) for point in points] for tag, points in curves.items()}
    assert [point.step for point in curves["step/bytes"]] == list(range(1, summary["train"]["steps"] + 1))
    assert sum(values["step/bytes"]) == summary["train"]["bytes"]
    assert np.mean(values["step/wait_for_data_s"]) == pytest.approx(summary["step"]["fetch_s"]["mean"], rel=1e-5)
    assert 0 < max(values["accelerator/utilisation"]) < 1.01
    listed = FileNames(RUN_FILES)
    written_files = [path for path in everything.directory.tensorboard.rglob("*") if path.is_file()]
    assert len(written_files) == 2
    assert all(listed.has_file(path.relative_to(everything.directory.path).parts) for path in written_files)


def test_the_report_has_a_verdict_and_the_published_figures(everything: Done, application: Done) -> None:
    text = everything.ended.stdout
    words = " ".join(text.split())
    assert " the emulated accelerator " in words
    assert "1 of 2 measured figures as published; different: train.samples 44 (published 1,000)" in words
    assert f"Results: {everything.directory.path}" in text
    for expected in compose(["recipe=cosmic_tagger"]).config.expect:
        assert f"  {expected.metric}  " in application.ended.stdout  # never broken


def test_the_summary_says_what_it_is_and_what_ran(everything: Done) -> None:
    summary = everything.summary
    assert (summary["schema"], summary["version"]) == ("dlio_torch.summary", "1")
    assert summary["recipe"] == "mine"
    assert summary["world_size"] == 1
    assert summary["dataset"]["real_input"] is False
    assert summary["dataset"]["layout"] is None
    assert summary["generate"]["written"] == 4
    assert summary["calibration"]["spin_tail_ns"] > 0
    assert summary["emulator"]["mode"] == "sleep"
    assert summary["compute_error"]["requested_s"]["mean"] == pytest.approx(0.003)
    environment = everything.directory.read_json(everything.directory.environment)
    assert environment["versions"]["torch"]
    ranks = {"backend": "single", "detail": "one process", "world_size": 1, "settings": {}}
    assert environment["ranks"] == ranks


def test_there_is_one_row_for_each_step(everything: Done) -> None:
    steps = everything.steps
    # 24 samples in batches of 4, then 6 in batches of 2, in each of two epochs.
    phases = [WARMUP] + [TRAIN] * 5 + [EVAL] * 3 + [TRAIN] * 6 + [EVAL] * 3
    assert steps["phase"].tolist() == phases
    assert steps["epoch"].tolist() == [1] * 9 + [2] * 9
    assert steps["step"].tolist() == [*range(1, 7), *range(1, 4)] * 2
    assert len(everything.directory.steps().read_text().splitlines()) == 1 + 18
    assert np.all(np.diff(steps["start_ns"]) > 0)
    assert not list(everything.directory.path.glob("steps.rank*"))


def test_samples_and_bytes_add_up(everything: Done) -> None:
    summary, steps = everything.summary, everything.steps
    assert (summary["warmup"]["steps"], summary["train"]["steps"], summary["eval"]["steps"]) == (1, 11, 6)
    assert (summary["warmup"]["samples"], summary["train"]["samples"], summary["eval"]["samples"]) == (4, 44, 12)
    size = 16 * 16 * 4
    assert np.array_equal(steps["bytes"], steps["samples"] * size)
    assert summary["train"]["bytes"] == 44 * size
    assert summary["reads"]["samples"] == summary["verified_samples"] == 60
    # The kernel's count: at least what the tensors hold, each epoch on its own.
    for epoch in summary["epochs"][0]:
        assert epoch["io"]["rchar"] >= 30 * size
    assert summary["io"]["rchar_bytes"] == sum(epoch["io"]["rchar"] for epoch in summary["epochs"][0])


def test_a_step_asks_for_its_compute_and_gets_it(everything: Done) -> None:
    steps = everything.steps
    trained = steps[steps["phase"] != EVAL]
    assert set(trained["requested_ns"].tolist()) == {3_000_000}
    assert np.all(trained["compute_ns"] >= trained["requested_ns"])
    assert set(steps[steps["phase"] == EVAL]["requested_ns"].tolist()) == {1_000_000}
    # Neither evaluation steps nor steps without a checkpoint have parts that were not done.
    assert not steps[steps["phase"] == EVAL]["allreduce_ns"].any()
    assert np.flatnonzero(trained["checkpoint_ns"]).tolist() == [3, 5, 7, 11]


def test_the_five_files_of_a_checkpoint_are_written(everything: Done) -> None:
    sizes = {path.name: path.stat().st_size for path in (everything.directory.path / "checkpoints").iterdir()}
    names = {"checkpoint": 1 << 10}
    for step in (4, 6, 8, 12):  # every four steps, and the end of each epoch
        names |= {
            f"model.ckpt-{step}.data-00000-of-00001": 4 << 20,
            f"model.ckpt-{step}.meta": 64 << 10,
            f"model.ckpt-{step}.index": 4 << 10,
            f"graph-{step}.pbtxt": 1 << 10,
        }
    assert sizes == names
    each = (4 << 20) + (64 << 10) + (4 << 10) + 2 * (1 << 10)
    assert everything.summary["saved"] == {"checkpoints": 4, "bytes": 4 * each, "fsync": False}


def test_spans_come_from_trainer_and_workers(everything: Done) -> None:
    table = everything.events
    assert table.skipped == ()
    roles = {process.pid: process.role for process in table.processes}
    assert "trainer" in roles.values()
    of_workers = table.frame[[roles[pid].startswith("loader worker") for pid in table.frame["pid"]]]
    assert {"open", "read", "preprocess", "collate"} <= set(of_workers["op"])
    of_trainer = Counter(table.frame[[roles[pid] == "trainer" for pid in table.frame["pid"]]]["op"])
    assert of_trainer["fetch"] == of_trainer["compute"] == 12
    assert of_trainer["checkpoint"] == 4
    assert of_trainer["eval_fetch"] == of_trainer["eval_compute"] == 6
    assert of_trainer["generate"] == 4
    folder = everything.directory.path.parent
    files = {folder / file for file in of_workers[of_workers["op"] == "read"]["file"]}
    assert files == set(Path(everything.summary["dataset"]["path"]).rglob("*.h5"))


def test_the_merged_trace_holds_every_span(everything: Done) -> None:
    with gzip.open(everything.directory.trace) as file:
        trace = json.load(file)
    names = Counter(event["name"] for event in trace["traceEvents"] if event["ph"] == "X")
    spans = Counter(everything.events.frame["op"])
    assert all(names[op] >= count for op, count in spans.items() if op not in AMOUNTS)
    assert not names.keys() & set(AMOUNTS)  # they have no place in time
    processes = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert "rank 0 trainer" in processes
    assert any(name.startswith("rank 0 loader worker 0") for name in processes)


def test_slices_of_a_track_nest_or_follow_each_other(everything: Done, application: Done) -> None:
    for done in (everything, application):
        assert "checkpoint" in {one[2] for slices in tracks(done.directory.trace).values() for one in slices}
        assert overlaps(done.directory.trace) == []


def test_a_checkpoint_holds_its_writes_where_the_trainer_itself_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without compute the bookkeeping of a step stands between the batch and the checkpoint."""

    def add(self: OrderChecksum, numbers: object) -> None:
        time.sleep(0.02)

    monkeypatch.setattr(OrderChecksum, "add", add)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    options = ("compute=none", "checkpoint=torch_save", "checkpoint.state_bytes=64KiB", "checkpoint.every_steps=1")
    options = (*options, "train.epochs=1", "output.dir=run")
    assert in_process(tmp_path, monkeypatch, "recipe=./mine.yaml", *options) == 0
    trace = tmp_path / "run" / "trace.json.gz"
    assert overlaps(trace) == []
    slices = [one for track in tracks(trace).values() for one in track]
    saves = [one for one in slices if one[2] == "checkpoint"]
    writes = [one for one in slices if one[2] == "write" and one[0] >= saves[0][0]]
    assert len(writes) == len(saves) == 6
    assert all(save[0] <= write[0] <= write[1] <= save[1] for save, write in zip(saves, writes, strict=True))


def test_the_profiler_leaves_a_file_for_tensorboard(everything: Done, application: Done) -> None:
    files = list(everything.directory.tensorboard.glob("rank0.*.pt.trace.json.gz"))
    assert len(files) == 1
    with gzip.open(files[0]) as file:
        names = {event["name"] for event in json.load(file)["traceEvents"]}
    assert "ProfilerStep#1" in names
    assert any(name.startswith("enumerate(DataLoader)#") for name in names)
    assert not application.directory.tensorboard.exists()


def test_a_reader_thread_reads_ahead_and_the_first_rank_evaluates(application: Done) -> None:
    table = application.events
    assert {process.role for process in table.processes} == {"trainer"}
    threads = table.processes[0].threads
    reads = table.frame[(table.frame["op"] == "read") & table.frame["file"].str.contains("train_|eval_", na=False)]
    assert len(reads)
    assert {threads[tid].split()[0] for tid in reads["tid"]} == {"reader"}
    fetches = table.frame[table.frame["op"] == "fetch"]
    assert {threads[tid] for tid in fetches["tid"]} == {"MainThread"}
    steps = application.steps
    assert steps["phase"].tolist() == [WARMUP] + [TRAIN] * 3 + [EVAL] + [TRAIN] * 4 + [EVAL] + [TRAIN] * 2
    assert application.summary["eval"]["steps"] == 2


def test_a_restore_reads_a_checkpoint_of_the_given_size(application: Done) -> None:
    assert application.summary["restore"]["bytes"] == [(64 << 10) + 10]
    assert application.summary["restore"]["seconds"][0] > 0
    assert application.summary["saved"] == {"checkpoints": 3, "bytes": 3 * ((64 << 10) + 10), "fsync": False}
    kept = {path.name for path in (application.directory.path / "checkpoints").iterdir()}
    assert kept == {"model_9", "checkpoint"}
    reads = application.events.frame
    reads = reads[(reads["op"] == "read") & reads["file"].str.contains("/checkpoints/", na=False)]
    assert sorted(reads["bytes"]) == [10, 64 << 10]


def test_the_resolved_configuration_repeats_the_run(everything: Done) -> None:
    first = compose([f"recipe={everything.directory.config}"]).config
    folder = everything.directory.path.parent
    again = dlio(folder, f"recipe={everything.directory.config}", "--json", name="again")
    assert again.ended.exit_code == 0, again.ended.stderr
    assert json.loads(again.ended.stdout) == again.summary  # alone on stdout
    assert "scale:" not in again.ended.stderr
    for column in ("epoch", "step", "phase", "requested_ns", "samples", "bytes"):
        assert np.array_equal(again.steps[column], everything.steps[column])
    second = compose([f"recipe={again.directory.config}"]).config
    assert replace(first, recipe="", output=second.output) == replace(second, recipe="")
    assert "mine.yaml" in everything.directory.sources.read_text()


def test_nothing_is_a_zero_that_was_not_measured(tmp_path: Path) -> None:
    done = dlio(tmp_path, "recipe=self_test", "scale=paper", "train.steps=60", "compute.mode=none")
    assert done.ended.exit_code == 0, done.ended.stderr
    summary = done.summary
    assert summary["io"]["rchar_bytes"] is None
    assert summary["io"]["read_bytes"] is None
    assert summary["io"]["cached_share_before"] is None
    assert set(summary["reads"].values()) - {summary["reads"]["samples"]} == {None}
    assert summary["au"]["mean"] is None
    assert summary["compute_error"] is None
    assert summary["restore"] == {"seconds": [None], "bytes": [None]}
    assert summary["load"] == {
        "seconds": [None],
        "bytes": [None],
        "rchar_bytes": None,
        "calls": None,
        "mean_bytes": None,
    }
    assert summary["generate"] is None
    assert summary["verified_samples"] is None
    for part in ("compute", "allreduce", "checkpoint"):
        assert summary["shares"][part] is None
        assert summary["step"][f"{part}_s"] is None
    assert summary["shares"]["fetch"] > 0
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A data set in memory and ``torch.save``; the data are used again by other tests."""
    return dlio(
        tmp_path_factory.mktemp("made"),
        "recipe=minimal",
        "scale=tiny",
        "verify=true",
        "loader.in_memory=true",
        "checkpoint=torch_save",
        "checkpoint.state_bytes=256KiB",
    )


def test_the_data_set_can_be_held_in_memory(made: Done) -> None:
    assert made.ended.exit_code == 0, made.ended.stderr
    summary = made.summary
    assert summary["load"]["bytes"] == [32 * 64 * 64 * 4]
    assert summary["load"]["seconds"][0] > 0
    assert summary["verified_samples"] == 32
    assert summary["io"]["rchar_bytes"] is None  # epochs read nothing
    # Every sample is read before the first step.
    frame = made.events.frame
    of_data = frame[(frame["op"] == "read") & frame["file"].str.endswith(".h5", na=False)]
    assert len(of_data) == 32
    assert of_data["end_ns"].max() <= made.steps["start_ns"].min()


def test_a_torch_checkpoint_has_its_size(made: Done) -> None:
    import torch

    files = list((made.directory.path / "checkpoints").iterdir())
    assert len(files) == 1
    assert files[0].stat().st_size == pytest.approx(256 << 10, rel=0.01)
    assert made.summary["saved"]["bytes"] == files[0].stat().st_size * made.summary["saved"]["checkpoints"]
    assert {"model", "optimizer", "step"} == torch.load(files[0], weights_only=True).keys()


def test_a_changed_byte_is_found(made: Done, tmp_path: Path) -> None:
    source = Path(made.summary["dataset"]["path"])
    folder = tmp_path / "data" / source.name
    for path in source.rglob("*"):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
    broken = folder / "train" / "train_0000002.h5"
    content = bytearray(broken.read_bytes())
    # The array of 8 samples of 16 KiB ends the file; this is in the middle of its sixth sample.
    content[-(2 * 16384 + 8000)] ^= 0xFF
    broken.write_bytes(content)
    done = dlio(tmp_path, "train", "recipe=minimal", "scale=tiny", "verify=true")
    assert done.ended.exit_code == 3
    lines = [line for line in done.ended.stderr.splitlines() if line.startswith("dlio_torch:")]
    assert len(lines) == 1
    assert "data/train/train_0000002.h5".removeprefix("data/") in lines[0]
    assert "sample 5 differs from the generated content in array" in lines[0]
    assert "Traceback" not in done.ended.stderr
    # What was done until then is there.
    steps = read_steps(done.directory.steps(0))[0]
    assert len(steps) < 8
    assert Counter(done.events.frame["op"])["fetch"] == len(steps)


def test_a_missed_threshold_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["recipe=self_test", "scale=paper", "train.steps=40", "train.min_au=1", "output.dir=missed"]
    assert in_process(tmp_path, monkeypatch, *arguments) == 4
    captured = capsys.readouterr()
    line = captured.err.splitlines()[-1]
    assert line.startswith("dlio_torch: error: accelerator utilisation is ")
    assert "train.min_au=1" in line
    assert "accelerator utilisation" in captured.out  # the report comes first
    assert RunDir(tmp_path / "missed").missing() == ()


def test_training_without_data_fails_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(tmp_path, monkeypatch, "train", "recipe=minimal", "scale=tiny") == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "train_0000000.h5 does not exist (4 of 4 files are missing)" in line
    assert "generate" in line
    assert in_process(tmp_path, monkeypatch, "train", "recipe=minimal", "scale=tiny", "--dry-run") == 3
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_named(made: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(made.summary["dataset"]["path"])
    folder = tmp_path / "data" / source.name
    (folder / "train").mkdir(parents=True)
    for path in source.rglob("*"):
        if path.is_file() and path.name != "train_0000001.h5":
            os.link(path, folder / path.relative_to(source))
    errors: list[str] = []
    monkeypatch.setattr(cli, "_say_error", lambda text, launch=None: errors.append(text))
    assert in_process(tmp_path, monkeypatch, "train", "recipe=minimal", "scale=tiny") == 3
    assert len(errors) == 1
    assert "train_0000001.h5 does not exist (1 of 4 files are missing)" in errors[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("recipe", ["minimal", "cosmic_tagger", "self_test"])
def test_a_dry_run_writes_nothing(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(tmp_path, monkeypatch, f"recipe={recipe}", "scale=tiny", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    starts = {line.split(":")[0] for line in lines}
    assert {"data", "ranks", "steps", "reads", "checkpoints", "memory", "time"} <= starts
    assert ("evaluations" in starts) == (recipe == "cosmic_tagger")
    assert list(tmp_path.iterdir()) == []


def test_the_plan_is_what_the_run_does(
    made: Done, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made.directory.path.parent
    before = sorted(folder.rglob("*"))
    assert in_process(folder, monkeypatch, "recipe=minimal", "scale=tiny", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "4 files, 32 samples" in out
    assert "(4 already there)" in out
    assert "steps: 8 per rank and epoch, 1 epoch, 4 samples per rank and step" in out
    assert len(made.steps) == 8
    assert sorted(folder.rglob("*")) == before


def test_the_evaluation_of_an_endless_stream_ends(tmp_path: Path) -> None:
    stream = ["access.pattern=stream", "access.partition=files", "access.tail=pad"]
    evaluation = ["train.eval_every_epochs=1", "dataset.num_files_eval=1", "dataset.samples_per_file_eval=10"]
    done = dlio(tmp_path, "recipe=minimal", "scale=tiny", *stream, *evaluation)
    assert done.ended.exit_code == 0, done.ended.stderr
    assert done.summary["eval"]["steps"] == 3
