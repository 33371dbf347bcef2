"""Combinations of loader settings: which ones there are on which node, and the arguments of their runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.config.compose import Composed, compose
from dlio_torch.errors import ConfigError
from dlio_torch.node.combinations import (
    KEYS,
    combinations,
    label,
    runnable,
    trial_settings,
    with_settings,
    worker_counts,
)
from dlio_torch.node.node_measurement import combination_record
from dlio_torch.node.node_plan import plan_node
from dlio_torch.node.node_request import NodeRequest
from dlio_torch.node.run_length import RunLength
from dlio_torch.study.model import Trial
from dlio_torch.study.short_runs import batches_ahead

MINIMAL = ["recipe=minimal", "scale=tiny"]


def chosen(*settings: str, cores: int = 2, numa_nodes: int = 1, gpus: int = 0) -> list[tuple[str, ...]]:
    """The values of each combination, in the order of the keys."""
    config = compose([*MINIMAL, *settings]).config
    fixed = {setting.partition("=")[0] for setting in settings}
    values = combinations(config, cores=cores, numa_nodes=numa_nodes, gpus=gpus, fixed=fixed)
    return [tuple(dict(combination)[key] for key in KEYS) for combination in values]


def ten_steps(run: Composed) -> tuple[int, int]:
    """Steps and batches ahead of any run."""
    return 10, 2


def test_two_cores_without_a_gpu_have_twelve() -> None:
    engines = ("dataloader", "decoupled")
    assert chosen() == [
        *((engine, workers, "none", "false") for engine in engines for workers in "0124"),
        *((engine, workers, "cores", "false") for engine in engines for workers in "12"),
    ]


def test_numa_nodes_gpus_and_more_cores_add_some() -> None:
    assert worker_counts(compose(MINIMAL).config, 64) == [0, 1, 2, 4, 64]
    values = chosen(cores=64, numa_nodes=2, gpus=4)
    assert len(set(values)) == len(values)
    assert {value[1] for value in values if value[2] == "numa"} <= {"4", "64"}
    assert ("dataloader", "64", "cores", "false") in values
    assert [value for value in values if value[3] == "true"] == [
        ("dataloader", "64", "none", "true"),
        ("decoupled", "64", "none", "true"),
    ]
    assert not [value for value in chosen(cores=64) if value[2] == "numa" or value[3] == "true"]


@pytest.mark.parametrize(
    ("settings", "place", "value", "count"),
    [
        (["loader.engine=decoupled"], 0, "decoupled", 6),
        (["loader.num_workers=3"], 1, "3", 2),
        (["loader.affinity=cores", "loader.num_workers=1"], 2, "cores", 2),
    ],
)
def test_a_setting_of_the_command_line_stays(settings: list[str], place: int, value: str, count: int) -> None:
    values = chosen(*settings)
    assert {combination[place] for combination in values} == {value}
    assert len(values) == count


def test_options_of_workers_are_reset_without_workers() -> None:
    composed = compose(["recipe=unet3d", "scale=tiny"])
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0)
    usable, notes = runnable(composed, ["recipe=unet3d", "scale=tiny"], values, ten_steps)
    assert len(usable) == 12
    assert notes == []
    [without, *_] = (item.point for item in usable if dict(item.point.values)["loader.num_workers"] == "0")
    assert "loader.persistent_workers=false" in without.settings
    assert [item.point.number for item in usable] == list(range(1, 13))


def test_a_combination_that_cannot_run_is_left_out_with_the_reason() -> None:
    settings = ["recipe=minimal", "loader.prefetch_factor=4"]
    composed = compose([*settings, "loader.num_workers=1"])
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0, fixed={"loader.prefetch_factor"})
    usable, notes = runnable(composed, settings, values, ten_steps)
    assert len(usable) + len(notes) == len(values)
    assert notes
    assert all(note.startswith("left out: point ") and "loader.prefetch_factor" in note for note in notes)


def test_a_combination_without_a_whole_batch_is_left_out() -> None:
    def no_batch_for_four(run: Composed) -> tuple[int, int]:
        if run.config.loader.num_workers == 4:
            raise ConfigError("the data do not give a batch to each worker")
        return 20 - run.config.loader.num_workers, 0

    composed = compose(MINIMAL)
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0)
    usable, notes = runnable(composed, MINIMAL, values, no_batch_for_four)
    assert sorted({item.steps for item in usable}) == [18, 19, 20]
    assert notes == ["left out: the data do not give a batch to each worker"] * 2
    with pytest.raises(ConfigError, match="do not give a batch"):
        runnable(composed, MINIMAL, [value for value in values if dict(value)["loader.num_workers"] == "4"],
               no_batch_for_four)  # fmt: skip


def test_runs_neither_save_nor_evaluate_and_given_settings_win() -> None:
    composed = compose(["recipe=unet3d", "scale=tiny"])
    settings = trial_settings(composed, ["recipe=unet3d", "storage.limits=measure"], gpus=0)
    config = compose(settings).config
    assert (config.train.epochs, config.checkpoint.every_epochs, config.checkpoint.layout) == (1, 0, "none")
    assert config.storage.limits == "measure"
    assert not [setting for setting in settings if setting.startswith("train.device")]
    assert "train.device=cuda" in trial_settings(composed, ["recipe=unet3d"], gpus=1)


def test_steps_and_warm_up_are_arguments_of_the_run() -> None:
    composed = compose(MINIMAL)
    [item, *_], _ = runnable(composed, MINIMAL, combinations(composed.config, cores=2, numa_nodes=1, gpus=0), ten_steps)
    run = with_settings(item.point, ["train.steps=6", "train.warmup_steps=2"])
    assert run.values == item.point.values
    config = compose(run.settings).config
    assert (config.train.steps, config.train.warmup_steps) == (6, 2)


def test_a_label_names_what_differs() -> None:
    values = tuple(zip(KEYS, ("decoupled", "1", "cores", "true"), strict=True))
    assert label(values) == "decoupled, 1 worker, affinity cores, pinned memory"
    assert label(tuple(zip(KEYS, ("dataloader", "2", "none", "false"), strict=True))) == "dataloader, 2 workers"


def run_of(number: int, rate: float, *, seconds: float = 1.0, repeat: int = 1) -> Trial:
    """A finished run of steps of 4 samples; ``seconds`` is the time of all its steps."""
    figures = {"train.samples_per_s": rate, "au.mean": rate / 20, "train.samples": 24.0, "train.steps": 6.0}
    return Trial(point=number, repeat=repeat, figures={**figures, "epochs.0.0.seconds": seconds})


LENGTH = RunLength(steps=8, warmup=2, repeats=2, run_s=1.0)


def test_a_combination_has_the_median_of_its_runs_or_the_reason() -> None:
    composed = compose(MINIMAL)
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0)
    [first, second, third, *_], _ = runnable(composed, MINIMAL, values, ten_steps)
    trials = [
        run_of(1, 10.0),
        run_of(1, 12.0, repeat=2),
        run_of(1, 20.0, repeat=3),
        Trial(point=2, status="failed", exit_code=1, error="no memory"),
    ]
    record = combination_record(first, trials, LENGTH)
    assert (record["samples_per_s"], record["runs_samples_per_s"], record["why"]) == (12.0, [10.0, 12.0, 20.0], "")
    assert record["au"] == pytest.approx(0.6)
    failed = combination_record(second, trials, LENGTH)
    assert (failed["samples_per_s"], failed["au"], failed["why"]) == (None, None, "no memory")
    assert "--seconds" in combination_record(third, trials, LENGTH)["why"]


@pytest.mark.parametrize(
    ("ahead", "seconds", "steady"),
    [
        (5, 99.0, True),  # 6 measured steps, of which at least one was not read before
        (6, 99.0, False),  # all may have been read before
        (6, 2.0, True),  # 8 steps of 4 samples in 2 s: 16 samples/s at the least
        (6, 2.3, False),
    ],
)
def test_a_rate_of_batches_that_were_read_before_is_no_figure(ahead: int, seconds: float, steady: bool) -> None:
    composed = compose(MINIMAL)
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0)
    [item, *_], _ = runnable(composed, MINIMAL, values, lambda run: (8, ahead))
    record = combination_record(item, [run_of(1, 16.0, seconds=seconds)], LENGTH)
    assert (record["samples_per_s"] is not None) == steady
    assert record["runs_samples_per_s"] == [16.0]
    assert record["why"] == (
        "" if steady else "the loader reads 6 batches ahead, so that 6 measured steps may have used only batches that "
        "were read before; use more data (dataset.num_files)"
    )  # fmt: skip


def test_a_run_that_had_too_little_time_asks_for_more_of_it() -> None:
    values = combinations(compose(MINIMAL).config, cores=2, numa_nodes=1, gpus=0)
    [item, *_], _ = runnable(compose(MINIMAL), MINIMAL, values, lambda run: (9, 1))
    short = RunLength(steps=2, warmup=1, repeats=1, run_s=1.0)
    why = combination_record(item, [run_of(1, 16.0, seconds=99.0)], short)["why"]
    assert why.startswith("the loader reads 1 batch ahead, so that 1 measured step may have used")
    assert why.endswith("use longer runs (--seconds)")


def test_batches_ahead_follow_the_engine() -> None:
    def ahead(*settings: str) -> int:
        return batches_ahead(compose([*MINIMAL, *settings]).config, 1 << 20)

    assert ahead("loader.num_workers=0") == 0
    assert ahead("loader.num_workers=2", "loader.prefetch_factor=3") == 6
    assert ahead("loader.engine=decoupled", "loader.prefetch_bytes=16MiB") == 16
    assert ahead("loader.engine=decoupled", "loader.prefetch_bytes=64KiB") == 1
    assert ahead("loader.engine=decoupled", "loader.prefetch_bytes=3500KiB", "loader.num_workers=2") == 2
    assert ahead("loader.engine=decoupled", "loader.prefetch_bytes=64KiB", "loader.num_workers=2") == 2


def test_data_grow_until_each_loader_has_steps_of_its_own_unless_the_user_chose_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("recipe=resnet50", "accelerator=h100", "loader.num_workers=4", "loader.engine=dataloader")
    plan = plan_node(NodeRequest(given))
    [ahead] = {item.batches_ahead for item in plan.combinations}
    assert ahead == 8
    assert plan.steps > ahead + 4
    assert plan.config.dataset.samples_per_file == 125  # files keep their size
    small = plan_node(NodeRequest((*given, "scale=laptop")))
    assert small.config.dataset.num_files == 32
    assert small.steps < plan.steps
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_the_batch_of_one_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = (*MINIMAL, "loader.num_workers=0", "train.batch_size=32", "train.batch_scope=global")
    plan = plan_node(NodeRequest(given, accelerators=8))
    assert plan.demand.batch_size == 4
    for point in plan.points:
        train = compose(point.settings).config.train
        assert (train.batch_size, train.batch_scope) == (4, "rank")
