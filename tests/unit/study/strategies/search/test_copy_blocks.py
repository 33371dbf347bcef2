"""The settings to take over: every form of them is tried on the library that it is for."""

import re
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
import yaml
from ranks import REPO

from dlio_torch.config.compose import compose
from dlio_torch.study.model import Point
from dlio_torch.study.resolve import Resolved, resolve_point
from dlio_torch.study.strategies.search.copy_blocks import CopyBlocks, copy_blocks

BASE = ("recipe=minimal", "scale=tiny")


def resolved(*settings: str, ranks: int = 1) -> Resolved:
    return resolve_point(Point(1, (), (*BASE, *settings), ranks))


def advice(*settings: str, searched: tuple[str, ...] = ("loader",), ranks: int = 1) -> CopyBlocks:
    return copy_blocks(resolved(ranks=ranks), resolved(*settings, ranks=ranks), searched)


def test_dotlist_and_yaml_give_the_setting(tmp_path: Path) -> None:
    settings = ("loader=workers", "loader.prefetch_factor=4", "dataset.hdf5.chunk_bytes=16KiB")
    found = advice(*settings)
    wanted = resolved(*settings).composed.config
    assert compose([*BASE, *(f"{key}={value}" for key, value in found.settings)]).config == wanted
    assert dict(found.settings)["dataset.hdf5.chunk_bytes"] == "16KiB"
    assert "loader.num_workers=2" in found.dotlist

    blocks = dict(found.blocks)
    assert blocks["command line"] == found.dotlist
    recipe = (REPO / "recipes/minimal.yaml").read_text(encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load(recipe)
    for group, options in yaml.safe_load(blocks["YAML"]).items():
        for key, value in options.items():
            tree[group] = (
                {**tree.get(group, {}), key: {**tree.get(group, {}).get(key, {}), **value}}
                if isinstance(value, dict)
                else {**tree.get(group, {}), key: value}
            )
    mine = tmp_path / "minimal.yaml"
    mine.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert compose([f"recipe={mine}", "scale=tiny"]).config.loader == wanted.loader
    assert compose([f"recipe={mine}", "scale=tiny"]).config.dataset.hdf5 == wanted.dataset.hdf5


def test_elements_of_lists() -> None:
    found = advice("dataset.fields.0.chunk=[1,64,64]", searched=("dataset.fields.0.chunk",))
    assert found.settings == (("dataset.fields.0.chunk", "[1, 64, 64]"),)
    assert found.dotlist == "'dataset.fields.0.chunk=[1, 64, 64]'"
    assert "chunks=(1, 64, 64)" in dict(found.blocks)["create_dataset(...)"]


def test_the_default_shows_its_calls_and_changes_nothing() -> None:
    found = advice()
    assert found.settings == ()
    assert [title for title, _ in found.blocks] == ["DataLoader(...)"]


@pytest.mark.parametrize("settings", [(), ("loader=workers",), ("access=sequential", "loader=workers")])
def test_dataloader_call(settings: tuple[str, ...]) -> None:
    text = dict(advice(*settings).blocks)["DataLoader(...)"]
    dataset = torch.utils.data.TensorDataset(torch.arange(10.0))
    loader = eval(text, {"torch": torch, "dataset": dataset})
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.batch_size == 4
    workers = "loader=workers" in settings
    assert loader.num_workers == (2 if workers else 0)
    assert loader.prefetch_factor == (2 if workers else None)
    kind = torch.utils.data.SequentialSampler if "access=sequential" in settings else torch.utils.data.RandomSampler
    assert isinstance(loader.sampler, kind)


def test_dataloader_call_of_several_ranks() -> None:
    text = dict(advice("loader=workers", ranks=2).blocks)["DataLoader(...)"]
    assert "sampler=torch.utils.data.DistributedSampler(dataset, shuffle=True)" in text


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 4)])
def test_threads_are_nodes(threads: int, ahead: int) -> None:
    found = advice("loader=threads", f"loader.read_threads={threads}", f"loader.prefetch_batches={ahead}")
    (text,) = (text for title, text in found.blocks if title.startswith("torchdata.nodes"))
    names: dict[str, Any] = {"torch": torch, "dataset": torch.utils.data.TensorDataset(torch.arange(10.0))}
    exec(text, names)
    batches = list(names["loader"])
    assert [len(batch[0]) for batch in batches] == [4, 4]  # drop_last


def test_hdf5_calls(tmp_path: Path) -> None:
    settings = ("dataset=hdf5_gzip", "dataset.hdf5.chunk_bytes=32KiB", "dataset.hdf5.chunk_cache_bytes=16MiB")
    blocks = dict(advice(*settings, searched=("dataset.hdf5.chunk_bytes",)).blocks)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        array = eval(blocks["create_dataset(...)"], {"file": file})
        assert array.chunks == (2, 64, 64)
        assert (array.compression, array.compression_opts) == ("gzip", 4)
        assert array.shape == (8, 64, 64)
    with eval(blocks["h5py.File(...)"], {"h5py": h5py, "path": path}) as file:
        assert file.id.get_access_plist().get_cache()[2] == 16 << 20


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("dataset=tfrecord", "dataset.tfrecord.transfer_size=1MiB"), "TFRecordDataset(files, buffer_size=1048576)"),
        (("dataset=parquet", "dataset.parquet.row_group_samples=64"), "row_group_size=64"),
        (("dataset=npz", "dataset.npz.buffer_bytes=1MiB"), "buffering=1048576"),
        (("dataset=indexed_binary", "dataset.binary.access=mmap"), "numpy.memmap(path"),
    ],
)
def test_calls_of_other_formats(settings: tuple[str, ...], text: str) -> None:
    found = advice(*settings, searched=("dataset.x",))
    assert re.search(re.escape(text), "\n".join(block for _, block in found.blocks))
