"""``dataset.path=``: the same recipe on files that the application made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from ranks import REPO, Ended, run_ranks

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import existing_manifest
from dlio_torch.data.order.planning import eval_sampler, train_sampler
from dlio_torch.formats.larcv3.format import Larcv3Format
from dlio_torch.report.data_text import data_lines
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.steps import read_steps

# Five real events, an example of the application's; they are no part of this repository.
REAL = next(REPO.parent.glob("*/data/cosmic_tagging_light.h5"), REPO.parent / "cosmic_tagging_light.h5")
OPTIONS = ("recipe=cosmic_tagger", "scale=tiny", "checkpoint=none", "train.eval_every_steps=5")
LABEL, IMAGE = "sparse2d_sbnd_cosmicseg", "sparse2d_sbndwire"


def write(path: Path, events: int = 7) -> None:
    """A file of the application's layout: what is read, and what it holds beside that."""
    config = compose(["recipe=cosmic_tagger", "dataset.larcv3.voxels_mean=900", "dataset.larcv3.voxels_stdev=100"])
    with ThreadPoolExecutor(1) as pool:
        Larcv3Format(config.config.dataset, seed=5).write(path, 0, events, pool)
    with h5py.File(path, "a") as file:
        for producer in ("cluster2d_sbndneutrino", "cluster2d_sbndsegmerged"):
            group = file.create_group(f"Data/{producer}_group")
            group.create_dataset("extents", data=np.zeros(events, [("first", "<u8"), ("N", "<u4")]))
            group.create_dataset("voxels", data=np.zeros(40, [("id", "<u8"), ("value", "<f4")]))
        particles = file.create_group("Data/particle_sbndneutrino_group")
        particles.create_dataset("particles", data=np.zeros(events, [("id", "<u8"), ("energy", "<f8")]))


@dataclass(frozen=True)
class Done:
    ended: Ended
    summary: dict[str, Any]
    samples: list[int]
    bytes: int


def content(path: Path) -> int:
    """Bytes of the tensors that the run must deliver, from the file's own tables."""
    config = compose([*OPTIONS, f"dataset.path={path}"]).config
    manifest, _ = existing_manifest(config, Larcv3Format(config.dataset, config.seed))
    train = train_sampler(config, manifest, 0, 1)
    evaluation = eval_sampler(config, manifest, 0, 1, train.batch_size)
    assert evaluation is not None
    times = (
        np.bincount(train.expected(0), minlength=train.num_samples)
        + np.bincount(evaluation.expected(0), minlength=evaluation.num_samples)
        + np.bincount(evaluation.expected(1), minlength=evaluation.num_samples)
    )
    total = 0
    with h5py.File(path) as file:
        for producer in (LABEL, IMAGE):
            group = file[f"Data/{producer}_group"]
            rows = group["voxel_extents"]["N"].reshape(-1, 3)
            total += int((times * (rows.sum(axis=1) * 16 + 3 * (72 + group["voxel_extents"].dtype.itemsize))).sum())
    return total + 24 * int(times.sum())


def run(path: Path, folder: Path) -> Done:
    arguments = ["-m", "dlio_torch", *OPTIONS, f"dataset.path={path}", "output.dir=run"]
    ended = run_ranks("single", 1, arguments, cwd=folder)[0]
    assert ended.exit_code == 0, ended.stderr
    directory = RunDir(folder / "run")
    steps = read_steps(directory.steps())[0]
    assert [entry.name for entry in folder.iterdir()] == ["run"]  # nothing is generated
    return Done(ended, directory.read_json(directory.summary), steps["samples"].tolist(), int(steps["bytes"].sum()))


def test_a_file_of_the_application_is_read(tmp_path: Path) -> None:
    path = tmp_path / "input.h5"
    write(path)
    folder = tmp_path / "work"
    folder.mkdir()
    done = run(path, folder)
    assert done.samples == [2] * 12  # ten steps, and an evaluation of one step after every fifth
    assert done.bytes == content(path)
    dataset = done.summary["dataset"]
    assert dataset["real_input"] is True
    assert dataset["path"] == str(path)
    assert dataset["layout"]["files"] == 1
    assert dataset["layout"]["samples"] == dataset["layout"]["events"] == 7
    with h5py.File(path) as file:
        voxels = file[f"Data/{IMAGE}_group/voxels"]
        for producer in (LABEL, IMAGE):
            assert dataset["layout"][producer]["voxels"] == voxels.shape[0]
            assert dataset["layout"][producer]["chunk_rows"] == 1000
        # Chunks are 16,000 bytes; deflated ones are smaller.
        assert 1000 < dataset["layout"][IMAGE]["stored_chunk_mean_bytes"] < 16_000
    lines = [line for line in done.ended.stderr.splitlines() if line.startswith("data: ")]
    assert lines[0] == f"data: existing data in {path}: 1 file, 7 samples (events 7)"
    assert lines[1].startswith(f"data: {LABEL}: voxels ")
    assert lines[2].startswith(f"data: {IMAGE}: voxels ")
    assert "stored chunk mean bytes" in lines[2]
    assert done.summary["generate"] is None
    assert "published" in done.ended.stdout


@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not there")
def test_real_events_are_read(tmp_path: Path) -> None:
    done = run(REAL, tmp_path)
    found = done.summary["dataset"]["layout"]
    assert found["events"] == 5
    assert (found[LABEL]["voxels"], found[IMAGE]["voxels"]) == (276_764, 276_764)
    assert found[LABEL]["stored_chunk_mean_bytes"] == pytest.approx(2742, rel=0.01)
    assert found[IMAGE]["stored_chunk_mean_bytes"] == pytest.approx(6641, rel=0.01)
    assert done.bytes == content(REAL)
    assert "5 samples (events 5)" in done.ended.stderr


def damage(path: Path, how: str) -> None:
    if how == "cut off":
        path.write_bytes(path.read_bytes()[:3000])
    elif how == "no HDF5":
        path.write_text("run,subrun,event\n")
    else:
        with h5py.File(path, "a") as file:
            if how == "no group":
                del file[f"Data/{LABEL}_group"]
            elif how == "no table":
                del file[f"Data/{IMAGE}_group/voxel_extents"]
            elif how == "other type":
                del file[f"Data/{IMAGE}_group/voxels"]
                file[f"Data/{IMAGE}_group/voxels"] = np.zeros(100, "float32")
            elif how == "other length":
                table = file[f"Data/{IMAGE}_group/extents"]
                table.resize((table.shape[0] - 1,))
            else:
                del file["Events/event_id"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no group", f"no array 'Data/{LABEL}_group/extents'"),
        ("no table", f"no array 'Data/{IMAGE}_group/voxel_extents'"),
        ("other type", f"Data/{IMAGE}_group/voxels holds float32"),
        ("other length", f"Data/{IMAGE}_group/extents has 6 rows, but the file has 7 events"),
        ("no events", "no array 'Events/event_id'"),
        ("cut off", "cannot be read"),
        ("no HDF5", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_named(
    how: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input.h5"
    write(path)
    damage(path, how)
    monkeypatch.chdir(tmp_path)
    assert cli.main([*OPTIONS, f"dataset.path={path}"]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("scale: ")]
    assert len(lines) == 1
    assert lines[0].startswith("dlio_torch: error: ")
    assert str(path) in lines[0]
    assert says in lines[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["input.h5"]


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_a_path_that_is_not_there_is_named(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*OPTIONS, "dataset.path=nowhere/a.h5", *arguments]) == 3
    assert "dataset.path='nowhere/a.h5' does not exist" in capsys.readouterr().err.splitlines()[-1]
    (tmp_path / "empty").mkdir()
    assert cli.main([*OPTIONS, "dataset.path=empty", *arguments]) == 3
    assert "dataset.path='empty' contains no *.h5 or *.hdf5 file" in capsys.readouterr().err.splitlines()[-1]


def test_a_dry_run_looks_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "input.h5")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*OPTIONS, "dataset.path=input.h5", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "data: existing data in input.h5: 1 file, 7 samples (events 7)" in out
    assert f"data: {IMAGE}: voxels " in out
    assert [entry.name for entry in tmp_path.iterdir()] == ["input.h5"]


def test_of_several_files_the_first_one_is_described() -> None:
    details = {"files": 3, "samples": 30, "events": 10, "data": {"chunks": (1, 4), "compression": None}}
    assert list(data_lines("/data", details)) == [
        "data: existing data in /data: 3 files, 30 samples",
        "data: in the first file: data: chunks (1, 4)",
    ]
