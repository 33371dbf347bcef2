"""The system calls on a shard are those of a program that uses WebDataset as its users do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
from straced import needs_strace, results, straced

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

SHARDS, SAMPLES = 3, 40

PLAIN = """
import sys, warnings
warnings.simplefilter("ignore")
import webdataset
urls = [f"shard-{number}.tar" + sys.argv[1] for number in range(3)]
data = webdataset.WebDataset(urls, shardshuffle=False).shuffle(10).decode("rgb8").to_tuple("jpg", "cls")
assert sum(1 for image, label in data) == 120
"""

OURS = """
import sys
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline.stream import StreamStart
from dlio_torch.data.pipeline.stream_dataset import StreamDataset
from dlio_torch.formats.core.registry import create
from dlio_torch.iotrace.recorder.spans import NULL
from pathlib import Path
names = [f"shard-{number}.tar" + sys.argv[1] for number in range(3)]
fields = [FieldConfig("jpg", "uint8", [8, 9, 3]), FieldConfig("cls", "int64")]
fmt = create(DatasetConfig(format="webdataset", fields=fields, path="."), 1)
plan = StreamPlan([40, 40, 40], StreamSpec(batch_size=8, pool=10))
manifest = Manifest("train", 0, FileCounts([40, 40, 40]), Path("."), names, ".tar")
start = StreamStart(plan, StreamDataset(fmt, manifest, NULL))
assert sum(len(batch) for batch in start(0, 0)) == 120
"""


def write(folder: Path, suffix: str) -> None:
    rng = np.random.default_rng(1)
    for shard in range(SHARDS):
        with wds.TarWriter(str(folder / f"shard-{shard}.tar{suffix}")) as writer:
            for number in range(SAMPLES):
                image = rng.integers(0, 256, (8, 9, 3), np.uint8)
                name = f"{shard:03d}{number:06d}"
                writer.write({"__key__": name, "jpg": image, "cls": number, "json": {"unread": "x" * 700}})


@needs_strace
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_calls_of_a_stream_are_those_of_the_library(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder, suffix)
    plain, ours = (straced(textwrap.dedent(program), folder, suffix) for program in (PLAIN, OURS))
    assert sorted(plain) == sorted(ours) == [f"shard-{shard}.tar{suffix}" for shard in range(SHARDS)]
    for name in plain:
        assert ours[name] == plain[name]
        size = (folder / name).stat().st_size
        # The whole shard, with the members that nobody asks for, but for the padding at its end.
        assert size - 10240 < sum(results(plain[name], "read")) <= size
