"""``verify=true``: whatever is wrong with the data is found and named, in every format and by every way of reading."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_files import config_of, make, make_raw
from format_configs import CONFIGS, ONE_SAMPLE, WITHOUT_FILES
from optional_parts import formats

from dlio_torch import cli
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.dataset.verification import check_contents, check_counts
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.train.steps import read_steps

WITH_FILES = sorted(CONFIGS.keys() - WITHOUT_FILES)


def data_of(name: str, root: Path) -> Config:
    samples = 1 if name in ONE_SAMPLE else 2
    dataset = replace(CONFIGS[name], root=str(root), num_files=2, samples_per_file=samples)
    return Config(recipe="test", verify=True, dataset=dataset)


@pytest.mark.parametrize("name", formats(WITH_FILES))
def test_a_swapped_pair_of_files_is_found_in_every_format(tmp_path: Path, name: str) -> None:
    fmt, manifests = make(data_of(name, tmp_path))
    manifest = manifests["train"]
    for path in manifest.path(0).parent.rglob("*"):
        os.utime(path, ns=(1, 1))  # as of files that are written within one tick of the clock
    SampleDataset(fmt, manifest, NULL, verify=True).__getitems__(range(manifest.num_samples))
    for suffix in ("", *fmt.companions()):
        one, other = (manifest.path(file).with_name(manifest.path(file).name + suffix) for file in (0, 1))
        one.rename(aside := one.with_name("aside"))
        other.rename(one)
        aside.rename(other)
    last = manifest.num_samples - 1
    with pytest.raises(DataError, match=r"train_0000001.* differs from the generated content in array ") as caught:
        SampleDataset(fmt, manifest, NULL, verify=True).__getitems__([last])
    assert f"; sample {last} of train" in str(caught.value)
    assert "\n" not in str(caught.value)
    SampleDataset(fmt, manifest, NULL).__getitems__([last])  # nothing else tells


def test_the_line_names_the_byte_of_the_file(tmp_path: Path) -> None:
    fmt, manifests = make(config_of(tmp_path))
    path = manifests["train"].path(1)
    rows = SampleDataset(fmt, manifests["train"], NULL)[9]["v/rows"].numpy().tobytes()  # the third sample of its file
    content = bytearray(path.read_bytes())
    at = content.index(rows) + 6
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        SampleDataset(fmt, manifests["train"], NULL, verify=True).__getitems__([8, 9])
    assert str(caught.value).startswith(
        f"{path}: sample 2 differs from the generated content in array v/rows: "
        f"byte 6 of {len(rows)} differs (1 bytes in all); "
        f"sample 9 of train, byte {at} of train_0000001.h5; the file is damaged, or was replaced by another file"
    )


def test_a_format_that_cannot_tell_says_so(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    batch: Batch = SampleDataset(fmt, manifest, NULL)[8]
    batch["data"][0, 1] += 1
    with pytest.raises(DataError, match="sample 8 of train, at an unknown position in the file"):
        check_contents(batch, fmt, manifest)


def test_a_file_of_another_seed_or_layout_is_found(tmp_path: Path) -> None:
    config = config_of(tmp_path / "mine")
    fmt, manifests = make(config)
    path = manifests["train"].path(1)
    seed = replace(config, seed=9)
    others = {
        "differs from the generated content": replace(
            seed, dataset=replace(config.dataset, root=str(tmp_path / "seed"))
        ),
        "holds float32, but the configuration expects int32": config_of(
            tmp_path / "type", fields=[replace(field, dtype="float32") for field in config.dataset.fields]
        ),
        "holds 5 samples, expected 7": config_of(tmp_path / "count", samples_per_file=5),
    }
    for words, other in others.items():
        path.write_bytes(make(other)[1]["train"].path(1).read_bytes())
        with pytest.raises(DataError, match=rf"train_0000001\.h5.*{words}"):
            SampleDataset(fmt, manifests["train"], NULL, verify=True)[8]


# --- every way of reading -------------------------------------------------------------------------

SMALL = (
    *("recipe=minimal", "scale=paper", "dataset.num_files=2", "dataset.samples_per_file=8", "train.epochs=2"),
    "dataset.fields.0.shape=[8,8]",
    *("compute.step_s=0.1ms", "output.dir=run", "output.progress=false", "loader.timeout_s=60"),
)
STREAM = ("access=stream", "access.order=sequential")
WAYS = {
    "map": (),
    "map, workers": ("loader.num_workers=1",),
    "threads": ("loader.read_threads=2",),
    "blocks": ("access.unit=block",),
    "in memory": ("loader.in_memory=true",),
    "stateful": ("loader.engine=stateful",),
    "nodes": ("loader.engine=nodes", "loader.read_threads=2"),
    "decoupled": ("loader.engine=decoupled",),
    "decoupled, workers": ("loader.engine=decoupled", "loader.num_workers=1"),
    "stream": STREAM,
    "stream, workers": (*STREAM, "loader.num_workers=1"),
    "stream, whole files": (*STREAM, "access.unit=file"),
    "stream, decoupled": (*STREAM, "loader.engine=decoupled"),
    "held": ("access.hold_steps=2",),
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data set of which a bit is flipped, and what must be said of it."""
    folder = tmp_path_factory.mktemp("damaged")
    assert cli.main(["generate", *SMALL, f"dataset.root={folder}"]) == 0
    path = next(folder.glob("*/train/train_0000001.h5"))
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # of the last sample
    path.write_bytes(content)
    place = f"sample 15 of train, byte {len(content) - 5} of train_0000001.h5"
    return (
        folder,
        f"{path}: sample 7 differs from the generated content in array data: "
        f"byte 251 of 256 differs (1 bytes in all); {place}",
    )


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_finds_a_flipped_bit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    damaged: tuple[Path, str],
    way: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [*SMALL, f"dataset.root={damaged[0]}", *WAYS[way]]
    assert cli.main(["train", *options, "verify=true"]) == 3
    said = [line for line in capfd.readouterr().err.splitlines() if "error" in line or "Traceback" in line]
    assert len(said) == 1
    assert damaged[1] in said[0]


# --- how often each sample came ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ([3, 5], "1 samples .* sample 3 was delivered 1 times, not 2"),
        ([5, 3, 6, 3], "1 samples .* sample 6 was delivered 1 times, not 0"),
        ([], "2 samples .* sample 3 was delivered 0 times, not 2"),
        ([3, 3, 4], "2 samples .* sample 4 was delivered 1 times, not 0"),
    ],
)
def test_samples_that_came_too_often_or_not_at_all_are_named(came: Sequence[int], words: str) -> None:
    due = np.array([3, 3, 5])
    check_counts(1, np.array([3, 5, 3]), due)
    with pytest.raises(DataError, match=f"epoch 2: {words}"):
        check_counts(2, np.array(came, np.int64), due)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_gives_another_sample_is_found_at_the_end_of_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], workers: int
) -> None:
    right = CatchingDataset.__getitems__

    def wrong(self: CatchingDataset, indices: Sequence[int]) -> object:
        return right(self, [4 if index == 11 else index for index in indices])  # sound, but not what was asked for

    monkeypatch.setattr(CatchingDataset, "__getitems__", wrong)
    monkeypatch.chdir(tmp_path)
    assert cli.main([*SMALL, "verify=true", f"loader.num_workers={workers}"]) == 3
    assert (
        "epoch 1: 2 samples were not delivered as often as access.order requires: sample 4 was delivered 2"
        in capfd.readouterr().err
    )
    assert set(read_steps(tmp_path / "run" / "steps.rank0.csv")[0]["epoch"]) == {1}  # the second one is not begun
