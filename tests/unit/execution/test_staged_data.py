"""Copies of the data on storage of the node: what is copied, when it goes, and what stands in the way.

test_nodes.py has ranks of several nodes that read theirs, test_launch_jobs.py several ranks of one node.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.order.files_read import files_read
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import ConfigError, DataError, PreconditionError
from dlio_torch.execution.staged_data import make_stager, staged_files, staged_manifests
from dlio_torch.files import locked_folder
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.storage import staging
from dlio_torch.storage.staging import Stager

SMALL = ("recipe=minimal", "scale=paper", "dataset.num_files=6", "dataset.samples_per_file=2", "train.batch_size=1")


def made(folder: Path, *arguments: str) -> tuple[Any, Any, dict[str, Manifest]]:
    """A configuration, its format, and manifests whose files are there, with 10 bytes and more."""
    config = compose([*SMALL, f"dataset.root={folder / 'data'}", f"stage.dir={folder / 'local'}", *arguments]).config
    fmt = registry.create(config.dataset, config.seed)
    manifests = generated_manifests(config, fmt)
    for manifest in manifests.values():
        for file in range(manifest.num_files):
            for path in fmt.files(manifest.path(file)):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x" * (10 + file))
    return config, fmt, manifests


def stager(config: Any, fmt: Any, manifests: dict[str, Manifest]) -> Stager:
    return make_stager(config, fmt, manifests, SingleCommunicator(), NULL)


def there(folder: Path) -> list[str]:
    return sorted(
        path.name for path in (folder / "local").rglob("*") if path.is_file() and path.suffix not in (".lock", ".kept")
    )


def names(numbers: Sequence[int]) -> list[str]:
    return [f"train_{number:07d}.h5" for number in numbers]


def test_the_whole_set_is_copied_and_goes(tmp_path: Path) -> None:
    config, fmt, manifests = made(tmp_path)
    copies = stager(config, fmt, manifests)
    staged = copies.copy(1)
    assert (staged.files, staged.bytes, staged.reused) == (6, sum(range(10, 16)), 0)
    moved = staged_manifests(copies, manifests)["train"]
    for file in range(6):
        assert moved.path(file).read_bytes() == manifests["train"].path(file).read_bytes()
        assert moved.path(file).is_relative_to(tmp_path / "local")
    assert sorted(staged_files(copies, fmt, {"train": moved}).share(0, 1)) == [
        str(moved.path(file)) for file in range(6)
    ]
    copies.close()
    assert list((tmp_path / "local").iterdir()) == []


def test_a_kept_copy_is_used_again_where_it_is_complete_and_unchanged(tmp_path: Path) -> None:
    config, fmt, manifests = made(tmp_path, "stage.keep=true")
    first = stager(config, fmt, manifests)
    first.copy(1)
    first.close()
    paths = [staged_manifests(first, manifests)["train"].path(file) for file in range(6)]
    paths[0].unlink()
    paths[1].write_bytes(b"half")
    source = manifests["train"].path(2)
    source.write_bytes(b"y" * 12)  # of the same size as before
    os.utime(source, ns=(1, 1))
    (paths[3].parent / f".{paths[3].name}.{2**22 + 1}.part").write_bytes(b"left by a killed run")
    (paths[3].parent / "train_0000009.h5").write_bytes(b"which another run reads")
    staged = stager(config, fmt, manifests).copy(1)
    assert (staged.files, staged.reused) == (3, 3)
    assert paths[2].read_bytes() == b"y" * 12
    assert there(tmp_path) == names([*range(6), 9])


def test_what_a_killed_run_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    config, fmt, manifests = made(tmp_path)
    other = stager(config, fmt, manifests)  # which lives
    local = tmp_path / "local"
    left = local / f"dlio_torch-other-00000000.{0:016x}"
    nobodys = [local / "dlio_torch-thesis", local / f"dlio_torch-thesis-00000000.{1:016x}"]  # not the tool's
    for folder in (left, *nobodys):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
        locked_folder.lock_of(folder).touch()
    locked_folder.lock_of(left).unlink()
    os.close(locked_folder.lock(left))  # as the end of the process does
    locked_folder.remove_orphans(local)
    assert not left.exists()
    for folder in nobodys:
        assert (folder / "file").exists()
        shutil.rmtree(folder)
        locked_folder.lock_of(folder).unlink()
    assert other.folder.is_dir()
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == [
        other.folder.name,
        f"{other.folder.name}.lock",
    ]
    other.remove()


@pytest.mark.parametrize(("partition", "order"), [("files", "shuffled"), ("slices", "sequential")])
def test_ranks_with_a_share_of_their_own_get_only_that(partition: str, order: str, tmp_path: Path) -> None:
    config, fmt, manifests = made(tmp_path, f"access.partition={partition}", f"access.order={order}")
    shares = []
    for rank in range(3):
        ((manifest, mask),) = files_read(config, fmt, manifests, [rank], 3, range(config.train.epochs))
        assert manifest is manifests["train"]
        shares.append(set(np.flatnonzero(mask).tolist()))
    assert [len(share) for share in shares] == [2, 2, 2]
    assert set().union(*shares) == set(range(6))
    ((_, both),) = files_read(config, fmt, manifests, [0, 2], 3, range(1))
    assert set(np.flatnonzero(both).tolist()) == shares[0] | shares[2]
    everything = replace(config, access=replace(config.access, partition="batches"))
    ((_, all_of_them),) = files_read(everything, fmt, manifests, [1], 3, range(1))
    assert all_of_them.all()


@pytest.mark.parametrize(("fragment", "files", "samples"), [("shared_file", 1, 6), ("file_per_rank", 3, 2)])
def test_ranks_share_a_file_or_have_one_each(fragment: str, files: int, samples: int, tmp_path: Path) -> None:
    amount = (f"dataset.num_files={files}", f"dataset.samples_per_file={samples}")
    config, fmt, manifests = made(tmp_path, f"access={fragment}", *amount)
    plans = [train_sampler(config, manifests["train"], rank, 3, fmt) for rank in range(3)]
    assert [[int(plan.batch(0, step)[0]) for step in range(len(plan))] for plan in plans] == [[0, 1], [2, 3], [4, 5]]


def test_each_epoch_has_what_it_reads(tmp_path: Path) -> None:
    arguments = ["stage.every_epoch=true", "access.partition=files", "train.steps=4", "train.epochs=3"]
    config, fmt, manifests = made(tmp_path, *arguments)
    copies = stager(config, fmt, manifests)
    for epoch in (1, 2, 3):
        staged = copies.copy(epoch)
        ((_, mask),) = files_read(config, fmt, manifests, [0], 1, range(epoch - 1, epoch))
        assert there(tmp_path) == names(np.flatnonzero(mask).tolist())
        assert staged.files + staged.reused == np.count_nonzero(mask) <= 4
    copies.close()
    assert [one.epoch for one in copies.done] == [1, 2, 3]


def test_what_stands_in_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, fmt, manifests = made(tmp_path)
    copies = stager(config, fmt, manifests)
    with monkeypatch.context() as patch:
        patch.setattr(staging.shutil, "disk_usage", lambda path: _Usage(50))  # type: ignore[attr-defined]
        with pytest.raises(PreconditionError, match=r"needs 75 B, but only 50 B are free; choose another"):
            copies.copy(1)
    with monkeypatch.context() as patch:
        patch.setattr(staging.shutil, "copyfile", _full)  # type: ignore[attr-defined]
        with pytest.raises(
            PreconditionError, match=r"train_\d+.h5 could not be copied to stage.dir=.* No space left on device;"
        ):
            copies.copy(1)
    assert there(tmp_path) == []
    manifests["train"].path(3).unlink()
    with pytest.raises(DataError, match=r"train_0000003.h5 cannot be staged: No such file"):
        copies.copy(1)
    copies.remove()
    (tmp_path / "local").rmdir()
    (tmp_path / "local").touch()
    with pytest.raises(PreconditionError, match="cannot be written"):
        stager(config, fmt, manifests)
    with pytest.raises(ConfigError, match=r"contains an environment variable that is not set on this node"):
        stager(replace(config, stage=replace(config.stage, dir="$NO_SUCH_VARIABLE/x")), fmt, manifests)
    synthetic = compose(["recipe=self_test", "stage.dir=x"]).config
    with pytest.raises(ConfigError, match=r"dataset.format=synthetic has no files that could be copied"):
        stager(synthetic, registry.create(synthetic.dataset, 1), {})


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


def _full(source: Path, target: Path) -> None:
    target.write_bytes(b"hal")
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["stage.keep=true"], "stage.keep=true .*no data are copied"),
        (["stage.per=rank"], "stage.per=rank .*no data are copied"),
        (
            ["stage.dir=s3://bucket"],
            "no storage supports s3:// URLs; supported are paths \\(no scheme\\); use a local path",
        ),
        (["stage.dir= "], "the name of the folder is empty"),
        (
            ["stage.dir=local", "stage.every_epoch=true", "loader.in_memory=true"],
            "reads all data before the first epoch",
        ),
        (["stage.dir=local", "dist.backend=mpi", "access.io=collective"], "copies the file to each node"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose([*SMALL, "dataset=indexed_binary", *options])


def test_copies_do_not_lie_among_the_data(tmp_path: Path) -> None:
    config, fmt, manifests = made(tmp_path)
    inside = replace(config, stage=replace(config.stage, dir=str(manifests["train"].folder / "local")))
    with pytest.raises(ConfigError, match="must not lie in the folder of the data"):
        stager(inside, fmt, manifests)


def test_a_stream_gets_the_files_that_it_opens_for_its_pool(tmp_path: Path) -> None:
    stream = ("access=stream", "access.shuffle_pool=4", "train.steps=1")
    config, fmt, manifests = made(tmp_path, *stream, "access.shard=before_shuffle", "access.partition=files")
    ((_, mask),) = files_read(config, fmt, manifests, [1], 3, range(1))
    assert np.flatnonzero(mask).tolist() == [1, 4]
    dealt = replace(config, access=replace(config.access, shard="after_shuffle"))
    ((_, mask),) = files_read(dealt, fmt, manifests, [1], 3, range(1))
    assert mask.all()
