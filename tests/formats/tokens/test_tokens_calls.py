"""The system calls on a file of tokens are those of nanoGPT's get_batch."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
from calls_by_file import calls_by_file
from strace import need_strace
from straced import needs_strace, results, straced

BATCHES, BATCH, BLOCK = 5, 4, 700

PLAIN = """
import sys
import numpy as np
import torch

block_size, starts = 700, eval(sys.argv[2])

def get_batch(rows):
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in rows])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in rows])
    return x, y

def get_read_batch(rows):
    pieces = [np.fromfile("train.bin", np.uint16, block_size + 1, offset=2 * i) for i in rows]
    x = torch.stack([torch.from_numpy(piece[:-1].astype(np.int64)) for piece in pieces])
    y = torch.stack([torch.from_numpy(piece[1:].astype(np.int64)) for piece in pieces])
    return x, y

total = 0
for rows in starts:
    x, y = (get_batch if sys.argv[1] == "True" else get_read_batch)(rows)
    total += int(x.sum()) + 3 * int(y.sum())
print(total)
"""

OURS = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.iotrace.recorder.spans import NULL

options = TokensConfig(window=700, stride=1, memory_map=sys.argv[1] == "True")
fmt = create(DatasetConfig(format="tokens", path=".", tokens=options), 1)
manifest = Manifest("train", 0, FileCounts([50000 - 700]), Path("."), ["train.bin"], ".bin")
samples = SampleDataset(fmt, manifest, NULL)
total = 0
for rows in eval(sys.argv[2]):
    batch = samples.__getitems__(rows)
    total += int(batch["x"].sum()) + 3 * int(batch["y"].sum())
print(total)
"""


@needs_strace
@pytest.mark.parametrize("memory_map", [True, False])
def test_the_calls_of_a_batch_are_those_of_get_batch(tmp_path: Path, memory_map: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(2)
    rng.integers(0, 50257, 50000).astype(np.uint16).tofile(folder / "train.bin")
    starts = str(rng.integers(0, 50000 - BLOCK, (BATCHES, BATCH)).tolist())
    plain, ours = (
        straced(textwrap.dedent(program), folder, str(memory_map), starts)["train.bin"] for program in (PLAIN, OURS)
    )
    assert ours == plain
    if memory_map:
        assert len(results(plain, "mmap")) == len(results(plain, "openat")) == BATCHES
        assert not results(plain, "read")
    else:
        assert len(results(plain, "openat")) == BATCHES * BATCH


KEPT = """
from pathlib import Path
import numpy as np
np.memmap(Path("train.bin"), dtype=np.uint16, mode="r")
"""
OPENED = """
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.tokens.options import TokensConfig
options = TokensConfig(window=700, stride=1, reopen="none")
fmt = create(DatasetConfig(format="tokens", path=".", tokens=options), 1)
fmt.open(Path("train.bin")).close()
"""


def test_a_file_that_stays_mapped_is_opened_by_memmap_alone(tmp_path: Path) -> None:
    need_strace()
    np.zeros(50000, np.uint16).tofile(tmp_path / "train.bin")
    theirs, ours = (calls_by_file(program, tmp_path.resolve())["train.bin"] for program in (KEPT, OPENED))
    assert ours == theirs
    assert [call[0] for call in ours].count("mmap") == 1
