"""Studies before they run: arguments, study files, points, data sets, room."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.study import verb_keys
from dlio_torch.study.model import Study, grid
from dlio_torch.study.needs import StudyNeeds, needs, require_space
from dlio_torch.study.resolve import resolve, scale_lines
from dlio_torch.study.short_runs import short_run_lines
from dlio_torch.study.study_arguments import changed, parse
from dlio_torch.study.study_console import estimate
from dlio_torch.units import parse_duration

FILE = """
title: chunks of a small file
recipe: minimal
settings: [scale=tiny, train.batch_size=2]
scales:
  tiny: [train.epochs=2]
  laptop: [train.epochs=3]
repeats: 2
timeout_s: 5min
axes:
  - key: loader.num_workers
    values: [0..2]
  - key: layout
    values:
      rows: [dataset.hdf5.chunk_bytes=16KiB]
      none: [dataset.hdf5.chunk_bytes=0, train.batch_size=4]
values_by_scale:
  tiny: {loader.num_workers: [0, 1]}
figures: [step.fetch_s.mean, train.samples_per_s]
better: lower
"""


SAVES = ["verb=checkpoint", "checkpoint=torch_save"]
OWN = ["repeats=5", "ranks=2", "name=x", "output=there", "timeout=90"]


def study(*arguments: str, cwd: Path | None = None) -> Study:
    return parse(arguments, cwd=cwd, environ={})[0]


def test_several_values_make_an_axis_and_one_a_setting() -> None:
    found, output = parse(["recipe=minimal", "loader.num_workers=0..2", "dataset=hdf5,npz", "seed=3", *OWN])
    assert [(axis.key, axis.values) for axis in found.axes] == [
        ("loader.num_workers", ("0", "1", "2")),
        ("dataset", ("hdf5", "npz")),
    ]
    assert found.settings[-2:] == ("recipe=minimal", "seed=3")
    assert (found.repeats, found.ranks, found.name, found.timeout_s, output) == (5, 2, "x", 90.0, "there")
    points = grid(found)
    assert [point.label for point in points][:2] == [
        "loader.num_workers=0 dataset=hdf5",
        "loader.num_workers=0 dataset=npz",
    ]
    assert points[1].settings[-2:] == ("loader.num_workers=0", "dataset=npz")
    assert {point.ranks for point in points} == {2}


def test_a_study_without_a_recipe_is_titled_by_its_axes() -> None:
    assert study("dataset.path=mine", "seed=1,2").title == "seed"
    assert study("recipe=minimal", "seed=1,2").title == "minimal: seed"


def test_ranks_may_be_an_axis() -> None:
    assert [point.ranks for point in grid(study("recipe=minimal", "ranks=1,2,4"))] == [1, 2, 4]
    assert all("ranks" not in one for point in grid(study("recipe=minimal", "ranks=1,2")) for one in point.settings)


@pytest.mark.parametrize(
    "argument",
    [
        "repeats=0",
        "repeats=x",
        "ranks=0",
        "ranks=1,x",
        "timeout=soon",
        "timeout=0",
        "name=a/b",
        "output=",
        "output.dir=x",
        "verb=train",
        "verb=run,checkpoint",
        "saves=3",
    ],
)
def test_keys_of_the_sweep_are_checked(argument: str) -> None:
    with pytest.raises(ConfigError, match=argument.split("=", maxsplit=1)[0]):
        grid(study("recipe=minimal", argument))


def test_too_many_points() -> None:
    with pytest.raises(ConfigError, match=r"1000 x 1000 = 1000000 points"):
        study("recipe=minimal", "seed=1..1000", "train.batch_size=1..1000")


def test_what_may_change_while_a_study_is_resumed() -> None:
    found = changed(study("recipe=minimal"), ["repeats=7", "failures=2", "timeout=1h"])
    assert (found.repeats, found.failures, found.timeout_s) == (7, 2, 3600.0)
    with pytest.raises(ConfigError, match="seed=2"):
        changed(found, ["seed=2"])


def test_workloads_stay_workloads_where_the_command_line_chooses_some() -> None:
    found = study("study=scaling_shared", "application=FFN,CANDLE")
    assert [(axis.key, axis.values, axis.compared) for axis in found.axes] == [
        ("application", ("FFN", "CANDLE"), False),
        ("ranks", ("1", "2", "4"), True),
    ]


def test_a_study_file_and_what_the_command_line_changes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(FILE)
    found = study("study=./mine.yaml", "scale=tiny", cwd=tmp_path)
    assert (found.name, found.title, found.repeats, found.timeout_s) == ("mine", "chunks of a small file", 2, 300.0)
    assert (found.figures[0], found.better, found.definition) == ("step.fetch_s.mean", "lower", FILE)
    assert found.axes[0].values == ("0", "1")  # of this scale
    assert "train.epochs=2" in found.settings
    points = grid(found)
    assert [point.label for point in points][:2] == [
        "loader.num_workers=0 layout=rows",
        "loader.num_workers=0 layout=none",
    ]
    assert "train.batch_size=4" in points[1].settings
    assert "train.batch_size=2" not in points[1].settings
    other = study(
        "study=./mine.yaml", "loader.num_workers=1", "layout=none", "train.batch_size=8", "seed=1,2", cwd=tmp_path
    )
    assert [(axis.key, axis.values) for axis in other.axes] == [("layout", ("none",)), ("seed", ("1", "2"))]
    assert {"loader.num_workers=1", "train.batch_size=8", "train.epochs=3"} <= set(grid(other)[0].settings)
    with pytest.raises(ConfigError, match=r"layout=columns.*rows, none"):
        study("study=./mine.yaml", "layout=columns", cwd=tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("titel: x", r"titel .*bad.yaml:1.*did you mean title"),
        ("settings: [seed]", r"settings .*bad.yaml:1.*key=value"),
        ("axes: [{key: a}]", r"axes.0 .*bad.yaml:1.*key and values"),
        ("axes: [{key: seed, values: [1, 1]}]", r"bad.yaml:1.*twice"),
        ("axes: [{key: seed, values: [1, 2], compared: no}]", r"axes.0.compared .*bad.yaml:1.*true or false"),
        ("axes: [{key: seed, values: [1, 2], shown: false}]", r"axes.0 .*bad.yaml:1.*key and values"),
        ("axes: [{key: seed, values: ['1..']}]", r"seed=1\.\. .*bad.yaml:1.*not a range"),
        ("values_by_scale: {tiny: {seed: [1]}}", r"bad.yaml:1.*no axis seed"),
        ("repeats: many", r"repeats .*bad.yaml:1.*number"),
        ("verb: save", r"verb .*bad.yaml:1.*write run or checkpoint"),
        ("better: faster", r"better .*bad.yaml:1"),
    ],
)
def test_mistakes_in_a_study_file_name_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=message):
        study("study=./bad.yaml", cwd=tmp_path)
    with pytest.raises(ConfigError, match="study=none"):
        study("study=none", cwd=tmp_path)


def test_an_axis_without_meaning_at_a_point_is_left_out_of_it() -> None:
    found, notes = resolve(study("recipe=minimal", "loader.num_workers=0,1", "loader.prefetch_factor=2,8"))
    assert [(one.point.number, one.point.label) for one in found] == [
        (1, "loader.num_workers=0"),
        (2, "loader.num_workers=1 loader.prefetch_factor=2"),
        (3, "loader.num_workers=1 loader.prefetch_factor=8"),
    ]
    assert dict(found[0].point.values)["loader.prefetch_factor"] == "-"
    assert notes == ["loader.prefetch_factor has no meaning with loader.num_workers=0: one point replaces 2 points"]
    assert len({one.digest for one in found}) == 3


def test_an_impossible_combination_is_left_out_and_named() -> None:
    found, notes = resolve(study("recipe=minimal", "loader.num_workers=0,1", "loader.read_threads=0,1"))
    assert len(found) == 3
    assert len(notes) == 1
    assert notes[0].startswith("left out: loader.num_workers=1 loader.read_threads=1: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["loader.num_workers=0,x"], "point loader.num_workers=x: loader.num_workers=x .command line.: expected"),
        (["seed=1,y", "loader.num_workers=1,2"], "point seed=y loader.num_workers=1: seed=y"),
        (["loader.workers=1,2"], "loader.workers=1,2 .*unknown option; did you mean loader.num_workers"),
        (["dataset=hdf5,hdf6"], "point dataset=hdf6: dataset=hdf6 .*no such choice"),
        (["verb=checkpoint", "seed=1,2"], "point seed=1: .*describes no checkpoints, so there is nothing to save"),
        ([*SAVES, "saves=0,3"], "point saves=0: saves=0 .command line.: expected a number from 1"),
        ([*SAVES, "loads=-1"], "loads=-1 .command line.: expected a number from 0"),
        (["ranks=1,64"], "point ranks=64: .*a batch of 4 samples is larger than"),
    ],
)
def test_a_bad_value_is_found_before_anything_runs(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(study("recipe=minimal", "scale=tiny", *arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no point of the study can be run: recipe= "),
        (
            ["recipe=minimal", "scale=tiny", "loader.num_workers="],
            "no point of the study can be run: loader.num_workers= .command line",
        ),
        (
            ["recipe=minimal", "scale=tiny", "ranks=999"],
            "no point of the study can be run: .*each of 999 ranks, which has 0",
        ),
    ],
)
def test_no_point_is_left(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(study(*arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["objective=foo"], r"objective=foo \(command line\): the verb sweep has no such key; use the key with tune"),
        (["saves=3"], r"saves=3 \(command line\): the verb sweep has no such key; add verb=checkpoint"),
        (["verb=train"], r"verb=train \(command line\): trials have no such verb; choose one of run, checkpoint"),
        (
            ["repeat=3"],
            r"repeat=3 \(command line\): neither the verb sweep nor a run has such a key; did you "
            r"mean repeats\?",
        ),
        (
            ["runs=3"],
            r"runs=3 \(command line\): neither the verb sweep nor a run has such a key; did you mean "
            r"repeats\?",
        ),
        (["study=./nothere.yaml"], r"study=./nothere.yaml \(command line\): no such file; shipped studies are .*ffn"),
    ],
)
def test_what_the_arguments_cannot_be(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study("recipe=minimal", *arguments)


def test_a_setting_that_is_given_again_counts() -> None:
    assert "loader.num_workers=2" in study("recipe=minimal", "loader.num_workers=1", "loader.num_workers=2").settings


def test_a_mistake_in_a_study_file_is_not_blamed_on_the_command_line(tmp_path: Path) -> None:
    shipped = study("study=global_shuffle", "recipe=minimal")
    with pytest.raises(ConfigError, match=r"access.shard=after_shuffle \(conf/study/global_shuffle.yaml:\d+\)"):
        resolve(shipped)
    (tmp_path / "mine.yaml").write_text("recipe: minimal\nsettings: [seed=1, train.batch_size=-1]\n")
    with pytest.raises(ConfigError, match=r"train.batch_size=-1 \(./mine.yaml:2\): must be at least 1"):
        resolve(study("study=./mine.yaml", cwd=tmp_path))
    with pytest.raises(ConfigError, match=r"train.batch_size=-1 \(command line\): must be at least 1"):
        resolve(study("study=./mine.yaml", "train.batch_size=-1", cwd=tmp_path))


def test_what_the_scale_changed_is_said() -> None:
    found = resolve(study("recipe=minimal", "loader.num_workers=0,1"))[0]
    assert scale_lines(found) == (
        "compute.step_s 0.05 -> 0.01 (scale=laptop)",
        "compute is scaled by 0.2 and reading is not: waits for data are a larger share of the time here than "
        "in the full-size experiment",
    )
    some = resolve(study("recipe=minimal", "scale=laptop,paper"))[0]
    assert scale_lines(some)[0] == "compute.step_s 0.05 -> 0.01 (scale=laptop), 1 of 2 points"
    assert scale_lines(resolve(study("recipe=minimal", "scale=paper"))[0]) == ()
    asked = replace(study("recipe=minimal"), scaled=scale_lines(found))
    lines = list(estimate(asked, [one.point for one in found], StudyNeeds((), 0.0, {})))
    assert lines[1] == "scale: compute.step_s 0.05 -> 0.01 (scale=laptop)"


def test_the_help_says_what_is_done_without_a_key() -> None:
    made = study("recipe=minimal")
    own = verb_keys.KEYS["sweep"]
    assert own["repeats"].default.startswith(str(made.repeats))
    assert own["ranks"].default.startswith(str(made.ranks))
    assert own["failures"].default == str(made.failures)
    assert parse_duration(own["timeout"].default) == made.timeout_s


def test_points_share_data_sets_and_need_room_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = study("recipe=minimal", "scale=tiny", "dataset=hdf5,npz", "loader.num_workers=0,1", "dataset.num_files=1,2")
    found = resolve(asked)[0]
    needed = needs(found, cwd=tmp_path)
    assert [(one.points, one.files, one.missing_files) for one in needed.data] == [
        ((1, 2, 3, 4), 2, 2),  # one file is the first of two
        ((5, 6, 7, 8), 2, 2),
    ]
    assert [one.makers for one in needed.data] == [(2,), (6,)]
    require_space(needed, tmp_path)
    lines = list(estimate(asked, [one.point for one in found], needed))
    assert "trials: 8 points, 3 repeats of each: 24 in all" in lines
    assert any(line.startswith("data: 2 data sets") for line in lines)
    usage = namedtuple("usage", "total used free")(1, 1, int(needed.data[0].bytes * 1.5))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with pytest.raises(PreconditionError, match=r"the points of the study need .* left; choose another dataset.root"):
        require_space(needed, tmp_path)


def test_what_one_run_keeps_of_checkpoints_needs_room() -> None:
    found = resolve(study("recipe=minimal", "scale=tiny", "checkpoint=torch_save", "checkpoint.every_steps=2,100"))[0]
    size = found[0].composed.config.checkpoint.state_bytes
    assert needs(found).checkpoint_bytes == 2 * size  # the old one and the new one


def test_data_that_are_missing_for_one_point_do_not_end_the_study(tmp_path: Path) -> None:
    found = resolve(study("recipe=minimal", "scale=tiny", f"dataset.path=null,{tmp_path / 'none'}"))[0]
    needed = needs(found, cwd=tmp_path)
    assert [note.split(":")[0] for note in needed.notes] == ["will fail"]
    with pytest.raises(PreconditionError, match="does not exist"):
        needs(found[1:], cwd=tmp_path)


def test_trials_that_only_save_need_room_and_no_data(tmp_path: Path) -> None:
    asked = study("recipe=minimal", "scale=tiny", *SAVES, "checkpoint.state_bytes=1MiB", "saves=2,5", "loads=3")
    assert [axis.key for axis in asked.axes] == ["saves"]
    found = resolve(asked)[0]
    assert [resolved.point.verb for resolved in found] == ["checkpoint"] * 2
    assert [resolved.composed.config.checkpoint.keep for resolved in found] == [2, 3]  # as many as the loads read
    needed = needs(found, cwd=tmp_path)
    assert needed.data == ()
    assert needed.checkpoint_bytes == 4 << 20  # of five saves three are kept, and one more while it saves


def test_batches_do_not_matter_to_trials_that_only_save() -> None:
    assert len(resolve(study("recipe=minimal", "scale=tiny", *SAVES, "ranks=1,64"))[0]) == 2


def test_trials_that_only_save_have_figures_of_checkpoints(tmp_path: Path) -> None:
    assert study("recipe=minimal", *SAVES).figures[0] == "checkpoints.save.bytes_per_s.mean"
    (tmp_path / "mine.yaml").write_text("verb: checkpoint\nrecipe: minimal\nsettings: [saves=3]\n")
    found = study("study=./mine.yaml", cwd=tmp_path)
    assert (found.verb, found.figures[:1]) == ("checkpoint", study("recipe=minimal", *SAVES).figures[:1])
    assert "saves=3" in found.settings
    other = study("study=./mine.yaml", "verb=run", cwd=tmp_path)
    assert (other.verb, other.figures) == ("run", study("recipe=minimal").figures)
    assert other.identity != found.identity
    (tmp_path / "mine.yaml").write_text("recipe: minimal\nfigures: [checkpoints.save.stall_s.max]\nbetter: lower\n")
    assert study("study=./mine.yaml", *SAVES, cwd=tmp_path).figures == ("checkpoints.save.stall_s.max",)


def test_runs_of_fewer_steps_than_the_loader_reads_ahead_are_named(tmp_path: Path) -> None:
    asked = study("recipe=minimal", "scale=tiny", "loader.num_workers=0,2,4", "loader.prefetch_factor=2,4")
    short = needs(resolve(asked)[0], cwd=tmp_path).short_runs  # 8 steps, of which one is warm-up
    assert [(run.measured_steps, run.batches_ahead) for run in short] == [(7, 8), (7, 8), (7, 16)]
    lines = list(short_run_lines(short))
    assert len(lines) == 2
    assert "loader.num_workers=4" in lines[0]
    assert "7 measured steps with 8 batches read ahead: " in lines[0]
    assert lines[0].endswith("; raise train.epochs, or use more data")
    longer = study("recipe=minimal", "scale=tiny", "loader.num_workers=4", "train.epochs=2,3")
    assert not needs(resolve(longer)[0], cwd=tmp_path).short_runs
