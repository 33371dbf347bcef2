"""Combinations of loader settings: which ones there are on which node, and the arguments of their runs."""

from __future__ import annotations

import pytest

from dlio_torch.config.compose import Composed, compose
from dlio_torch.errors import ConfigError
from dlio_torch.node.combinations import (
    KEYS,
    combinations,
    label,
    points,
    trial_settings,
    with_settings,
    worker_counts,
)
from dlio_torch.node.node_measurement import combination_record
from dlio_torch.study.model import Trial

MINIMAL = ["recipe=minimal", "scale=tiny"]


def chosen(*settings: str, cores: int = 2, numa_nodes: int = 1, gpus: int = 0) -> list[tuple[str, ...]]:
    """The values of each combination, in the order of the keys."""
    config = compose([*MINIMAL, *settings]).config
    fixed = {setting.partition("=")[0] for setting in settings}
    values = combinations(config, cores=cores, numa_nodes=numa_nodes, gpus=gpus, fixed=fixed)
    return [tuple(dict(combination)[key] for key in KEYS) for combination in values]


def ten_steps(run: Composed) -> int:
    """The data of any run."""
    return 10


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
    usable, notes = points(composed, ["recipe=unet3d", "scale=tiny"], values, ten_steps)
    assert len(usable) == 12
    assert notes == []
    [without, *_] = (point for point in usable if dict(point.values)["loader.num_workers"] == "0")
    assert "loader.persistent_workers=false" in without.settings
    assert [point.number for point in usable] == list(range(1, 13))


def test_a_combination_that_cannot_run_is_left_out_with_the_reason() -> None:
    settings = ["recipe=minimal", "loader.prefetch_factor=4"]
    composed = compose([*settings, "loader.num_workers=1"])
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0, fixed={"loader.prefetch_factor"})
    usable, notes = points(composed, settings, values, ten_steps)
    assert len(usable) + len(notes) == len(values)
    assert notes
    assert all(note.startswith("left out: point ") and "loader.prefetch_factor" in note for note in notes)


def test_a_combination_without_a_whole_batch_is_left_out() -> None:
    def no_batch_for_four(run: Composed) -> int:
        if run.config.loader.num_workers == 4:
            raise ConfigError("the data do not give a batch to each worker")
        return 20 - run.config.loader.num_workers

    composed = compose(MINIMAL)
    values = combinations(composed.config, cores=2, numa_nodes=1, gpus=0)
    usable, notes = points(composed, MINIMAL, values, no_batch_for_four)
    assert sorted(set(usable.values())) == [18, 19, 20]
    assert notes == ["left out: the data do not give a batch to each worker"] * 2
    with pytest.raises(ConfigError, match="do not give a batch"):
        points(composed, MINIMAL, [value for value in values if dict(value)["loader.num_workers"] == "4"],
               no_batch_for_four)  # fmt: skip


def test_runs_neither_save_nor_evaluate_and_given_settings_win() -> None:
    composed = compose(["recipe=unet3d", "scale=tiny"])
    settings = trial_settings(composed, ["recipe=unet3d", "storage.limits=measure"], gpus=0)
    config = compose(settings).config
    assert (config.train.epochs, config.checkpoint.every_epochs, config.checkpoint.kind) == (1, 0, "none")
    assert config.storage.limits == "measure"
    assert not [setting for setting in settings if setting.startswith("train.device")]
    assert "train.device=cuda" in trial_settings(composed, ["recipe=unet3d"], gpus=1)


def test_steps_and_warm_up_are_arguments_of_the_run() -> None:
    composed = compose(MINIMAL)
    [point, *_], _ = points(composed, MINIMAL, combinations(composed.config, cores=2, numa_nodes=1, gpus=0), ten_steps)
    run = with_settings(point, ["train.steps=6", "train.warmup_steps=2"])
    assert run.values == point.values
    config = compose(run.settings).config
    assert (config.train.steps, config.train.warmup_steps) == (6, 2)


def test_a_label_names_what_differs() -> None:
    values = tuple(zip(KEYS, ("decoupled", "1", "cores", "true"), strict=True))
    assert label(values) == "decoupled, 1 worker, affinity cores, pinned memory"
    assert label(tuple(zip(KEYS, ("dataloader", "2", "none", "false"), strict=True))) == "dataloader, 2 workers"


def test_a_combination_has_the_mean_of_its_runs_or_the_reason() -> None:
    composed = compose(MINIMAL)
    [first, second, *_], _ = points(
        composed, MINIMAL, combinations(composed.config, cores=2, numa_nodes=1, gpus=0), ten_steps
    )
    trials = [
        Trial(point=1, repeat=1, figures={"train.samples_per_s": 10.0, "au.mean": 0.5}),
        Trial(point=1, repeat=2, figures={"train.samples_per_s": 14.0, "au.mean": 0.7}),
        Trial(point=2, status="failed", exit_code=1, error="no memory"),
    ]
    record = combination_record(first, trials)
    assert (record["samples_per_s"], record["runs_samples_per_s"], record["why"]) == (12.0, [10.0, 14.0], "")
    assert record["au"] == pytest.approx(0.6)
    failed = combination_record(second, trials)
    assert (failed["samples_per_s"], failed["au"], failed["why"]) == (None, None, "no memory")
