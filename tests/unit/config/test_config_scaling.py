"""The scale shrinks amounts, says so, and leaves alone what the user set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.scaling import data_steps, scale
from dlio_torch.config.schema import (
    AccessConfig,
    CheckpointConfig,
    CheckpointFileConfig,
    ComputeConfig,
    Config,
    DatasetConfig,
    LoaderConfig,
    ScaleConfig,
    SystemConfig,
    TrainConfig,
)
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig

RECIPE = """\
dataset: {num_files: 1, samples_per_file: 43075, num_files_eval: 1, samples_per_file_eval: 7362, fields: [{name: x}]}
train: {batch_size: 16, batch_scope: global, epochs: 40, steps: 150, allreduce_bytes: 1001}
compute: {step_s: 3.94, stdev_s: 0.4, distribution: normal, eval_step_s: 1, preprocess_s: 10ms}
checkpoint: {layout: torch_save, state_bytes: 4MiB, every_steps: 50}
system: {world_size: 8}
scales:
  laptop: {max_samples: 256, max_samples_eval: 64, max_steps: 20, max_epochs: 2, checkpoint: 0.1, allreduce: 0.2}
  tiny:
    max_samples: 5
"""


def of(tmp_path: Path, *args: str, world_size: int = 1) -> Composed:
    (tmp_path / "cosmic.yaml").write_text(RECIPE, encoding="utf-8")
    scale = [] if any(argument.startswith("scale=") for argument in args) else ["scale=laptop"]
    return compose(["recipe=cosmic.yaml", *scale, *args], cwd=tmp_path, environ={}, world_size=world_size)


def test_every_change_is_made_noted_and_sourced(tmp_path: Path) -> None:
    made = of(tmp_path)
    config = made.config
    assert made.notes == [
        "train.batch_size 16 -> 2 (scale=laptop)",
        "train.batch_scope global -> rank (scale=laptop)",
        "dataset.samples_per_file 43075 -> 256 (scale=laptop)",
        "dataset.samples_per_file_eval 7362 -> 64 (scale=laptop)",
        "train.steps 150 -> 20 (scale=laptop)",
        "train.epochs 40 -> 2 (scale=laptop)",
        "train.allreduce_bytes 1001 -> 200 (scale=laptop)",
        "compute.step_s 3.94 -> 0.394 (scale=laptop)",
        "compute.stdev_s 0.4 -> 0.04 (scale=laptop)",
        "compute.eval_step_s 1.0 -> 0.1 (scale=laptop)",
        "compute.preprocess_s 0.01 -> 0.001 (scale=laptop)",
        "checkpoint.every_steps 50 -> 5 (scale=laptop)",
    ]
    assert (config.train.batch_size, config.train.batch_scope) == (2, "rank")
    assert (config.dataset.num_files, config.dataset.samples_per_file) == (1, 256)
    assert config.compute.step_s == 0.394
    assert made.sources["dataset.samples_per_file"] == "scale laptop (published 43075)"
    assert made.scaled == {note.split()[0] for note in made.notes}
    assert config.scale.name == "laptop"


def test_a_block_of_the_recipe_adjusts_one_scale(tmp_path: Path) -> None:
    made = of(tmp_path, "scale=tiny")
    assert made.config.scale.max_samples == 5
    assert made.sources["scale.max_samples"] == "cosmic.yaml:9"
    assert made.sources["scale.max_steps"].startswith("conf/scale/tiny.yaml:")
    assert of(tmp_path, "scale=tiny", "scale.max_samples=6").config.dataset.samples_per_file == 6


def test_the_paper_scale_changes_nothing(tmp_path: Path) -> None:
    made = of(tmp_path, "scale=paper")
    assert made.notes == []
    assert made.config.dataset.samples_per_file == 43075
    assert made.config.train.batch_size == 16


@pytest.mark.parametrize(
    ("argument", "key", "value"),
    [
        ("dataset.samples_per_file=1000", "samples_per_file", 1000),
        ("dataset.num_files=500", "num_files", 500),
    ],
)
def test_what_the_command_line_sets_is_never_scaled(tmp_path: Path, argument: str, key: str, value: int) -> None:
    made = of(tmp_path, argument)
    assert getattr(made.config.dataset, key) == value
    assert made.sources[f"dataset.{key}"] == "command line"


def test_other_amounts_are_never_scaled_either(tmp_path: Path) -> None:
    made = of(
        tmp_path,
        "train.epochs=30",
        "train.steps=99",
        "compute.step_s=2",
        "checkpoint.every_steps=9",
        "train.batch_size=24",
    )
    config = made.config
    assert (config.train.epochs, config.train.steps, config.compute.step_s) == (30, 99, 2.0)
    assert config.checkpoint.every_steps == 9
    assert (config.train.batch_size, config.train.batch_scope) == (24, "global")


def test_scale_options_can_be_set_one_by_one(tmp_path: Path) -> None:
    assert of(tmp_path, "scale.max_samples=100").config.dataset.samples_per_file == 100


def apply(config: Config, fixed: set[str] | None = None, world_size: int = 1) -> Config:
    return scale(config, fixed=fixed or set(), world_size=world_size)[0]


def test_files_are_reduced_before_the_samples_of_a_file() -> None:
    data = DatasetConfig(num_files=1000, samples_per_file=30)
    config = apply(Config(dataset=data, scale=ScaleConfig(max_samples=100)))
    assert (config.dataset.num_files, config.dataset.samples_per_file) == (3, 30)
    config = apply(Config(dataset=data, scale=ScaleConfig(max_samples=20)))
    assert (config.dataset.num_files, config.dataset.samples_per_file) == (1, 20)
    config = apply(Config(dataset=data, scale=ScaleConfig(max_samples=20)), {"dataset.num_files"})
    assert (config.dataset.num_files, config.dataset.samples_per_file) == (1000, 1)
    config, changes = scale(Config(dataset=data, scale=ScaleConfig(max_files=16, max_samples=100)), fixed=())
    assert [(change.key, change.before, change.after) for change in changes] == [("dataset.num_files", 1000, 3)]
    config = apply(Config(dataset=data, scale=ScaleConfig(max_files=16)))
    assert (config.dataset.num_files, config.dataset.samples_per_file) == (16, 30)


def test_existing_data_keep_their_amount_but_the_steps_are_limited() -> None:
    data = DatasetConfig(num_files=1000, path="x")
    config = apply(Config(dataset=data, scale=ScaleConfig(max_files=2, max_samples=5, max_steps=7)))
    assert config.dataset.num_files == 1000
    assert config.train.steps == 7


def test_steps_follow_the_data_where_the_data_give_fewer() -> None:
    data = DatasetConfig(num_files=1, samples_per_file=1000, num_files_eval=1, samples_per_file_eval=1000)
    base = {"dataset": data, "scale": ScaleConfig(max_samples=100, max_samples_eval=30)}
    train = TrainConfig(batch_size=10, steps=80, eval_steps=60)
    config = apply(Config(train=train, **base))
    assert (config.train.steps, config.train.eval_steps) == (10, 3)
    assert apply(Config(train=train, **base), world_size=2).train.steps == 5
    # More steps than even the published data give are an error of the recipe, not for the scale to hide.
    assert apply(Config(train=TrainConfig(batch_size=10, steps=80), dataset=data)).train.steps == 80
    # Without a number of steps, the limit appears only where the data give more.
    free = TrainConfig(batch_size=10)
    assert apply(Config(train=free, dataset=data, scale=ScaleConfig(max_steps=100))).train.steps == 0
    assert apply(Config(train=free, dataset=data, scale=ScaleConfig(max_steps=99))).train.steps == 99


@pytest.mark.parametrize(
    ("tail", "workers", "limit", "steps"),
    [
        # 10 files of 7 samples: workers have 28, 21 and 21 samples, and batches of 10, so 3 steps each.
        ("keep", 3, 8, 8),
        ("keep", 3, 9, 0),
        ("pad", 3, 8, 8),
        ("pad", 3, 9, 0),
        ("drop", 3, 7, 0),
        ("keep", 1, 7, 0),
        ("keep", 1, 6, 6),
    ],
)
def test_the_limit_of_steps_holds_for_a_stream_with_several_workers(
    tail: str, workers: int, limit: int, steps: int
) -> None:
    """Each worker ends with a batch of its own, so that there are more batches than the samples alone would give."""
    config = Config(
        dataset=DatasetConfig(num_files=10, samples_per_file=7),
        train=TrainConfig(batch_size=10),
        access=AccessConfig(pattern="stream", partition="files", tail=tail),
        loader=LoaderConfig(num_workers=workers),
    )
    assert apply(replace(config, scale=ScaleConfig(max_steps=limit))).train.steps == steps


@pytest.mark.parametrize("tail", ["keep", "pad"])
@pytest.mark.parametrize(("limit", "steps"), [(17, 17), (18, 0)])
def test_the_limit_counts_the_steps_that_a_batch_is_held(tail: str, limit: int, steps: int) -> None:
    config = Config(
        dataset=DatasetConfig(num_files=10, samples_per_file=7),
        train=TrainConfig(batch_size=10),
        access=AccessConfig(pattern="stream", partition="files", tail=tail, hold_steps=2),
        loader=LoaderConfig(num_workers=3),
    )
    assert apply(replace(config, scale=ScaleConfig(max_steps=limit))).train.steps == steps


def test_an_interval_never_becomes_zero_and_none_stays_none() -> None:
    saved = CheckpointConfig(layout="torch_save", every_steps=3, state_bytes=1)
    assert apply(Config(checkpoint=saved, scale=ScaleConfig(checkpoint=0.01))).checkpoint.every_steps == 1
    assert apply(Config(scale=ScaleConfig(checkpoint=0.01))).checkpoint.every_steps == 0


def test_a_rank_keeps_at_least_one_sample_of_a_global_batch() -> None:
    config = Config(
        train=TrainConfig(batch_size=4, batch_scope="global"),
        system=SystemConfig(world_size=64),
        scale=ScaleConfig(keep_rank_batch=True),
    )
    assert (apply(config).train.batch_size, apply(config).train.batch_scope) == (1, "rank")


@given(
    files=st.integers(1, 2000),
    per_file=st.integers(1, 2000),
    max_samples=st.integers(0, 3000),
    max_files=st.integers(0, 50),
)
def test_limits_hold_and_nothing_grows(files: int, per_file: int, max_samples: int, max_files: int) -> None:
    config = apply(
        Config(
            dataset=DatasetConfig(num_files=files, samples_per_file=per_file),
            scale=ScaleConfig(max_samples=max_samples, max_files=max_files),
        )
    )
    data = config.dataset
    assert 1 <= data.num_files <= min(files, max_files or files)
    assert 1 <= data.samples_per_file <= per_file
    assert data.num_files * data.samples_per_file <= (max_samples or files * per_file)


@given(
    st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(1, 20), st.integers(1, 5)),
    st.sampled_from(["batches", "slices", "files", "none"]),
    st.sampled_from(["drop", "pad", "keep"]),
)
def test_steps_of_an_epoch_are_what_the_ranks_shares_give(
    amounts: tuple[int, int, int, int], partition: str, tail: str
) -> None:
    files, per_file, batch, world = amounts
    config = Config(
        dataset=DatasetConfig(num_files=files, samples_per_file=per_file),
        train=TrainConfig(batch_size=batch),
        access=AccessConfig(partition=partition, tail=tail),  # type: ignore[arg-type]
    )
    steps = data_steps(config, world)
    used = steps * batch * (1 if partition == "none" else world)
    total = files * per_file
    assert used <= total if tail == "drop" else used >= total


def test_scaled_times_have_no_dust() -> None:
    config = Config(compute=ComputeConfig(step_s=0.43), scale=ScaleConfig(compute=0.1))
    assert apply(config).compute.step_s == 0.043


@pytest.mark.parametrize(
    ("dataset", "samples", "first_touch", "expected"),
    [
        ("larcv3", 100, True, (1, 43008)),
        ("larcv3", 100, False, (0, 0)),
        ("larcv3", 0, True, (0, 0)),  # nothing shrank
        ("hdf5", 100, True, (0, 0)),  # only larcv3 has such caches
    ],
)
def test_caches_shrink_with_the_data(dataset: str, samples: int, first_touch: bool, expected: tuple[int, int]) -> None:
    data = DatasetConfig(format=dataset, samples_per_file=1000)
    made = apply(Config(dataset=data, scale=ScaleConfig(max_samples=samples, first_touch=first_touch)))
    assert (made.dataset.larcv3.table_cache_chunks, made.dataset.larcv3.metadata_cache_bytes) == expected


def test_a_cache_that_the_user_set_stays() -> None:
    data = DatasetConfig(format="larcv3", samples_per_file=1000)
    config = Config(dataset=data, scale=ScaleConfig(max_samples=10, first_touch=True))
    made = apply(config, {"dataset.larcv3.metadata_cache_bytes"})
    assert (made.dataset.larcv3.table_cache_chunks, made.dataset.larcv3.metadata_cache_bytes) == (1, 0)


@pytest.mark.parametrize("fixed", [set(), {"dataset.samples_per_file", "dataset.samples_per_file_eval"}])
def test_samples_of_a_file_are_limited_before_the_files_are_counted(fixed: set[str]) -> None:
    data = DatasetConfig(num_files=1024, samples_per_file=709, num_files_eval=10, samples_per_file_eval=94)
    limits = ScaleConfig(max_samples_per_file=128, max_samples=512, max_samples_eval=200)
    made, changes = scale(Config(dataset=data, scale=limits), fixed=fixed)
    train = (made.dataset.num_files, made.dataset.samples_per_file)
    assert train == ((1, 709) if fixed else (4, 128))
    assert (made.dataset.num_files_eval, made.dataset.samples_per_file_eval) == (2, 94)
    assert len({change.key for change in changes}) == len(changes)
    small = replace(data, samples_per_file=100)
    made = apply(Config(dataset=small, scale=ScaleConfig(max_samples_per_file=128)))
    assert (made.dataset.num_files, made.dataset.samples_per_file) == (1024, 100)


def test_two_limits_of_one_amount_are_one_change() -> None:
    data = DatasetConfig(num_files=1, samples_per_file=1000)
    _, changes = scale(Config(dataset=data, scale=ScaleConfig(max_samples_per_file=500, max_samples=80)), fixed=())
    assert [(change.key, change.before, change.after) for change in changes] == [("dataset.samples_per_file", 1000, 80)]


@pytest.mark.parametrize(("pool", "limit", "expected"), [(10_000, 16, 16), (8, 16, 8), (10_000, 0, 10_000), (0, 16, 0)])
def test_a_shuffle_pool_is_limited(pool: int, limit: int, expected: int) -> None:
    made = apply(Config(access=AccessConfig(shuffle_pool=pool), scale=ScaleConfig(max_shuffle_pool=limit)))
    assert made.access.shuffle_pool == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0, [520, 100, 520]),
        (160, [160, 100, 160]),
        (600, [520, 100, 520]),
        (50, [50, 50, 65]),  # a chunk stays whole
        (10, [49, 49, 65]),  # and so does a patch
    ],
)
def test_a_volume_shrinks_and_its_patches_and_chunks_do_not(limit: int, expected: list[int]) -> None:
    volume = VolumeConfig(
        shape=[520, 100, 520],
        arrays=[VolumeArrayConfig("a", chunk=[17, 33, 33]), VolumeArrayConfig("b", chunk=[33, 33, 65])],
    )
    config = Config(
        dataset=DatasetConfig(format="hdf5_volume", volume=volume), scale=ScaleConfig(max_volume_edge=limit)
    )
    made = apply(config).dataset.volume
    assert made == replace(volume, shape=expected)
    assert apply(config, {"dataset.volume.shape"}).dataset.volume == volume
    other = replace(config, dataset=replace(config.dataset, format="hdf5"))
    assert apply(other).dataset.volume == volume


@pytest.mark.parametrize(("factor", "sizes"), [(0.5, [500, 15, 0]), (1e-6, [1, 1, 0]), (1.0, [1000, 30, 0])])
def test_checkpoints_shrink_and_their_write_calls_do_not(factor: float, sizes: list[int]) -> None:
    files = [CheckpointFileConfig(str(size), size, write_bytes=7) for size in (1000, 30, 0)]
    saved = CheckpointConfig(layout="files", every_steps=10, files=files, state_bytes=1000)
    made, changes = scale(Config(checkpoint=saved, scale=ScaleConfig(checkpoint_size=factor)), fixed=())
    assert [file.bytes for file in made.checkpoint.files] == sizes
    assert [file.write_bytes for file in made.checkpoint.files] == [7, 7, 7]
    assert made.checkpoint.state_bytes == sizes[0]
    assert (made.checkpoint.every_steps, made.checkpoint.keep) == (10, 1)
    assert [change.key for change in changes] == (
        [] if factor == 1.0 else ["checkpoint.state_bytes", "checkpoint.files"]
    )


def test_a_batch_that_is_held_gives_several_steps() -> None:
    data = DatasetConfig(num_files=1, samples_per_file=1000)
    config = Config(dataset=data, access=AccessConfig(hold_steps=4), train=TrainConfig(batch_size=10, steps=380))
    assert data_steps(config) == 400
    assert apply(replace(config, scale=ScaleConfig(max_samples=200))).train.steps == 80
    assert apply(replace(config, scale=ScaleConfig(max_samples=980))).train.steps == 380


@pytest.mark.parametrize(
    ("access", "steps", "eval_steps"),
    [
        (AccessConfig(), 10, 3),
        (AccessConfig(pattern="stream"), 10, 3),
        (AccessConfig(pattern="stream", repeat=True), 80, 3),  # evaluations do not start over
        (AccessConfig(pattern="lanes"), 80, 60),
        (AccessConfig(order="random_blocks"), 80, 60),
    ],
)
def test_steps_of_patterns_without_an_end_stay(access: AccessConfig, steps: int, eval_steps: int) -> None:
    config = Config(
        dataset=DatasetConfig(num_files=1, samples_per_file=1000, num_files_eval=1, samples_per_file_eval=1000),
        train=TrainConfig(batch_size=10, steps=80, eval_steps=60),
        access=access,
        scale=ScaleConfig(max_samples=100, max_samples_eval=30),
    )
    made = apply(config).train
    assert (made.steps, made.eval_steps) == (steps, eval_steps)
    assert apply(replace(config, scale=replace(config.scale, max_steps=7))).train.steps == 7


def test_checkpoint_files_of_the_command_line_keep_their_size(tmp_path: Path) -> None:
    recipe = "dataset: {fields: [{name: x}]}\nscales: {tiny: {checkpoint_size: 0.1}}\n"
    (tmp_path / "mine.yaml").write_text(recipe, encoding="utf-8")
    files = "checkpoint.files=[{name: a, bytes: 100}]"
    args = ["recipe=mine.yaml", "scale=tiny", "checkpoint.layout=files", "checkpoint.every_steps=1", files]
    config = compose(args, cwd=tmp_path, environ={}).config
    assert [file.bytes for file in config.checkpoint.files] == [100]
