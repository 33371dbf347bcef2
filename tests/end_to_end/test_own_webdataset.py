"""Shards that WebDataset's own writer made: inspected and read in one command each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_data import summary_of, traced_command, training_reads

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

SHARDS, EACH = 4, 48


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of images of any size with a label, as ImageNet's."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(4)
    with wds.ShardWriter(f"{folder}/train-%04d.tar", maxcount=EACH, verbose=0) as writer:
        for number in range(SHARDS * EACH):
            height, width = rng.integers(20, 60, 2)
            image = rng.integers(0, 256, (height, width, 3), np.uint8)
            writer.write({"__key__": f"n{number:08d}", "jpg": image, "cls": number % 10, "json": {"number": number}})
    return folder


def test_own_shards_are_read_from_start_to_end(shards: Path, tmp_path: Path) -> None:
    calls = traced_command(tmp_path, f"dataset.path={shards}", "output.dir=run")
    done = summary_of(tmp_path)
    assert done["dataset"]["layout"]["samples"] == SHARDS * EACH
    assert done["warmup"]["samples"] + done["train"]["samples"] == SHARDS * EACH
    reads = training_reads(calls, shards)
    assert done["io"]["rchar_bytes"] == sum(call.result for call in reads)
    # Each shard is read once, from its first to its last byte, as a stream.
    for path in sorted(shards.iterdir()):
        mine = [call for call in reads if call.path == str(path)]
        assert {call.name for call in mine} == {"read"}
        assert path.stat().st_size - 10240 < sum(call.result for call in mine) <= path.stat().st_size


def test_inspect_writes_a_recipe_that_reads_them(shards: Path, tmp_path: Path) -> None:
    traced_command(tmp_path, "inspect", f"{shards}/train-{{0000..0003}}.tar", "--output", "mine.yaml")
    traced_command(tmp_path, "recipe=mine.yaml", "dataset.webdataset.decode=rgb8", "output.dir=run")
    done = summary_of(tmp_path)
    assert done["warmup"]["samples"] + done["train"]["samples"] == SHARDS * EACH
    sources = (tmp_path / "run" / "sources.yaml").read_text()
    assert "stream_pool.yaml" in sources
