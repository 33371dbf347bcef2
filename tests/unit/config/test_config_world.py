"""What depends on the number of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.config.scaling import data_steps
from dlio_torch.config.schema import AccessConfig, Config, DatasetConfig, TrainConfig
from dlio_torch.config.validate import check_world
from dlio_torch.errors import ConfigError


def config(
    files: int = 1, per_file: int = 24, batch: int = 1, scope: str = "rank", path: str | None = None, **access: str
) -> Config:
    return Config(
        dataset=DatasetConfig(num_files=files, samples_per_file=per_file, path=path),
        train=TrainConfig(batch_size=batch, batch_scope=scope),  # type: ignore[arg-type]
        access=AccessConfig(**access),  # type: ignore[arg-type]
    )


def refused(made: Config, world: int, *named: str, **counts: int) -> None:
    with pytest.raises(ConfigError) as caught:
        check_world(made, world, **counts, sources={"train.batch_size": "command line"})
    for text in named:
        assert text in str(caught.value)


def test_a_global_batch_is_cut_equally() -> None:
    made = config(batch=16, scope="global")
    check_world(made, 8)
    refused(made, 3, "train.batch_size=16 (command line)", "train.batch_scope=global", "3 ranks", "batch_size=15")
    refused(config(batch=2, scope="global"), 3, "batch_size=3")


def test_a_batch_fits_into_the_share_of_a_rank() -> None:
    check_world(config(batch=12), 2)
    refused(config(batch=13), 2, "train.batch_size=13 (command line)", "dataset.samples_per_file=24", "has 12", "=12")
    refused(config(batch=26, scope="global"), 2, "a batch of 13", "train.batch_size=24")
    refused(config(batch=25, partition="none"), 2, "the data set, which has 24")
    check_world(config(batch=24, partition="none"), 2)
    check_world(config(batch=13, tail="pad"), 2)


def test_a_random_block_fits_into_the_data_set() -> None:
    check_world(config(batch=12, order="random_blocks"), 2)
    refused(config(batch=13, order="random_blocks"), 2, "a block of 26", "has 24", "train.batch_size=12")
    refused(config(batch=26, scope="global", order="random_blocks"), 2, "a block of 26", "train.batch_size=24")
    check_world(config(batch=24, order="random_blocks", partition="none"), 2)


def test_whole_files_need_a_file_for_each_rank() -> None:
    made = config(files=3, per_file=4, partition="files")
    check_world(made, 3)
    refused(made, 4, "access.partition=files", "dataset.num_files=3", "4 ranks", "dataset.num_files=4")
    refused(config(files=3, per_file=4, batch=5, partition="files", order="shuffled"), 2, "has 4")


def test_existing_data_are_checked_once_they_are_counted() -> None:
    made = config(batch=6, path="events.h5")
    check_world(made, 1)
    refused(made, 1, "dataset.path=events.h5", "the data set, which has 5", "train.batch_size=5", num_samples=5)
    check_world(made, 1, num_samples=6)
    files = config(path="events.h5", partition="files")
    refused(files, 2, "dataset.path=events.h5", "start fewer ranks", num_samples=5, num_files=1)


@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.integers(1, 5)),
    st.sampled_from(["batches", "slices", "files", "none"]),
    st.sampled_from(["drop", "pad", "keep"]),
)
def test_what_is_accepted_gives_every_rank_a_step(
    amounts: tuple[int, int, int, int], partition: str, tail: str
) -> None:
    files, per_file, batch, world = amounts
    made = config(files, per_file, batch, partition=partition, tail=tail)
    try:
        check_world(made, world)
    except ConfigError:
        assert data_steps(made, world) == 0 or (partition == "files" and files % world)
    else:
        assert data_steps(made, world) >= 1


def test_files_that_ranks_read_to_the_end_divide_by_the_ranks() -> None:
    made = config(files=5, per_file=8, partition="files", order="sequential")
    check_world(made, 5)
    check_world(made, 1)
    refused(made, 2, "dataset.num_files=5", "5 files", "among 2 ranks", "set dataset.num_files=6", "start 1 rank")
    refused(config(files=6, per_file=8, partition="files"), 4, "dataset.num_files=8", "start 3 ranks")
    check_world(config(files=5, per_file=8, partition="files", tail="keep"), 2)
    check_world(config(files=5, per_file=8, partition="files", order="shuffled"), 2)
    check_world(config(files=5, per_file=8, partition="files", pattern="stream"), 2)
    existing = config(path="mine/*.h5", partition="files")
    check_world(existing, 2)
    refused(existing, 2, "dataset.path=mine/*.h5", "5 files", "start 1 rank", num_samples=40, num_files=5)
