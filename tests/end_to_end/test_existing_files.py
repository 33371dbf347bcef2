"""Files that other libraries wrote are read by one command, and by the recipe that ``inspect`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from example_protos import example_record

from dlio_torch import cli

IMAGES = np.random.default_rng(1).random((24, 6, 5)).astype(np.float32)


def npy(folder: Path) -> Path:
    np.save(folder / "images.npy", IMAGES)
    np.save(folder / "labels.npy", np.arange(24))
    return folder


def cases(folder: Path) -> Path:
    for number, image in enumerate(IMAGES):
        part = image[: 1 + number % 6, : 1 + number % 5]
        np.save(folder / f"case_{number:05}_x.npy", part)
        np.save(folder / f"case_{number:05}_y.npy", part > 0.5)
    return folder


def npz(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", x=IMAGES, y=np.arange(24))
    return folder / "a.npz"


def csv(folder: Path) -> Path:
    frame = pd.DataFrame(IMAGES.reshape(24, 30))
    frame["class"] = ["cat", "dog"] * 12
    frame.to_csv(folder / "a.csv")
    return folder / "a.csv"


def tfrecord(folder: Path) -> Path:
    records = [example_record({"image": [image.tobytes()], "label": [1]}) for image in IMAGES]
    (folder / "a.tfrecord").write_bytes(b"".join(records))
    return folder


def lmdb(folder: Path) -> Path:
    library = pytest.importorskip("lmdb", reason="lmdb is not installed")
    with library.open(str(folder / "train"), map_size=1 << 24) as environment, environment.begin(write=True) as writing:
        for number, image in enumerate(IMAGES):
            writing.put(f"{number:06d}".encode(), image.tobytes())
    return folder / "train"


@pytest.mark.parametrize("write", [npy, cases, npz, csv, tfrecord, lmdb], ids=lambda write: str(write.__name__))
@pytest.mark.parametrize("loader", ["main_process", "workers"])
def test_one_command(
    write: Callable[[Path], Path], loader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = write(data)
    options = [f"output.dir={tmp_path / 'run'}", "train.batch_size=4", "output.progress=false"]
    workers = ["loader=workers", "loader.num_workers=2"] if loader == "workers" else []
    assert cli.main([f"dataset.path={path}", *options, *workers]) == 0, capsys.readouterr().err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["reads"]["samples"] == 24
    if not workers:
        recipe = tmp_path / "mine.yaml"
        assert cli.main(["inspect", str(path), "--output", str(recipe)]) == 0
        assert "samples" in capsys.readouterr().out
        options[0] = f"output.dir={tmp_path / 'other'}"
        assert cli.main([f"recipe={recipe}", "--dry-run", *options]) == 0
