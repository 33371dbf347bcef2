"""Shards that MosaicML's library wrote, read in one command: all samples, and the bytes that strace counts."""

from __future__ import annotations

import shutil
from pathlib import Path

from mds_data import GOLDEN
from own_data import command, summary_of
from strace import READS, need_strace
from straced import results, straced

SAMPLES = 7
PLAIN = """
import json
import numpy as np
for shard in json.load(open("index.json"))["shards"]:
    for i in range(shard["samples"]):
        with open(shard["raw_data"]["basename"], "rb", 0) as file:
            file.seek((1 + i) * 4)
            begin, end = np.frombuffer(file.read(8), np.uint32)
            file.seek(begin)
            file.read(end - begin)
"""


def test_shards_of_the_library(tmp_path: Path) -> None:
    need_strace()
    shutil.copytree(GOLDEN, tmp_path / "data")
    arguments = ("train.batch_size=1", "trace.posix=true", "output.dir=run")
    command("dataset.path=data", *arguments, cwd=tmp_path)
    figures = summary_of(tmp_path)
    assert figures["reads"]["samples"] == SAMPLES
    plain = straced(PLAIN, tmp_path / "data")
    files = {Path(row["file"]).name: row for row in figures["posix"]["files"]["rows"] if row["file"].endswith(".mds")}
    assert len(files) == 4
    for name, row in files.items():
        reads = results(plain[name], *READS)
        assert (row["opens"], row["reads"], row["bytes_read"]) == (len(reads) // 2, len(reads), sum(reads))
