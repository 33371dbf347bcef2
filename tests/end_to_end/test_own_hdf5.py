"""An HDF5 file of one's own, made with h5py alone: inspected and read in one command each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml
from own_data import command, summary_of
from strace import READS
from straced import needs_strace, results, straced

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import existing_manifest
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.formats.core.registry import create

SAMPLES = 160  # 5 batches of 32
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "gzip": {"chunks": (4, 64, 64, 3), "compression": "gzip"},
}

# The body of a Dataset's __getitem__ in its three idioms.
PLAIN = """
import json, sys
import h5py
from pathlib import Path
order, reopen = json.loads(Path("order.json").read_text()), sys.argv[1]
path = Path("mine.h5").resolve()
if reopen == "file":
    for i in order:
        with h5py.File(path, "r") as f:
            f["images"][i], f["labels"][i]
elif reopen == "array":
    f = h5py.File(path, "r")
    for i in order:
        f["images"][i], f["labels"][i]
    f.close()
else:
    f = h5py.File(path, "r")
    images, labels = f["images"], f["labels"]
    for i in order:
        images[i], labels[i]
    f.close()
"""


@pytest.fixture(params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with ``mine.h5``."""
    place = tmp_path / "files"
    place.mkdir()
    generator = np.random.default_rng(3)
    with h5py.File(place / "mine.h5", "w") as file:
        images = generator.integers(0, 256, (SAMPLES, 64, 64, 3), np.uint8)
        file.create_dataset("images", data=images, **LAYOUTS[request.param])
        file["labels"] = generator.integers(0, 10, SAMPLES)
        file["names"] = ["cat", "dog"]
        file.attrs["camera"] = "front"
    return place


def order(path: Path) -> list[int]:
    """Samples in the order in which a run reads them."""
    config = compose([f"dataset.path={path}"]).config
    manifest, _ = existing_manifest(config, create(config.dataset, config.seed))
    sampler = train_sampler(config, manifest, 0, 1)
    return [int(sample) for step in range(len(sampler)) for sample in sampler.batch(0, step)]


@needs_strace
def test_a_file_is_read_with_the_bytes_of_plain_h5py(folder: Path) -> None:
    (folder / "order.json").write_text(json.dumps(order(folder / "mine.h5")))
    for reopen in ("none", "array", "file"):
        arguments = ["dataset.path=mine.h5", f"dataset.hdf5.reopen={reopen}", "trace.posix=true"]
        command(*arguments, f"output.dir=../{reopen}", cwd=folder)
        summary = json.loads((folder.parent / reopen / "summary.json").read_text())
        assert summary["reads"]["samples"] == SAMPLES
        (row,) = summary["posix"]["files"]["rows"]
        plain = straced(PLAIN, folder, reopen)["mine.h5"]
        sizes = results(plain, *READS)
        opens = len(results(plain, "openat"))
        assert (row["opens"], row["reads"], row["bytes_read"]) == (opens, len(sizes), sum(sizes)), reopen
        assert opens == (SAMPLES if reopen == "file" else 1)


def test_inspect_writes_a_recipe_that_reads_the_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["images"] = np.zeros((SAMPLES, 8, 8), np.uint8)
        file["labels"] = np.arange(SAMPLES)
    shown = command("inspect", "mine.h5", "--output", "mine.yaml", cwd=tmp_path)
    assert "a sample    images uint8 [8, 8]; labels int64" in shown
    assert yaml.safe_load((tmp_path / "mine.yaml").read_text())["dataset"]["format"] == "hdf5"
    command("recipe=mine.yaml", "output.dir=run", cwd=tmp_path)
    summary = summary_of(tmp_path)
    assert summary["warmup"]["samples"] + summary["train"]["samples"] == SAMPLES
