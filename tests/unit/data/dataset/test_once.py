"""Files that each rank opens once, beside the samples: the calls of DeepCAM and CDB, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from data_files import make
from straced import needs_strace, straced

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError

OURS = """
import sys
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.formats.core.registry import create
config = compose(sys.argv[1:]).config
fmt = create(config.dataset, config.seed)
OnceFiles(config, fmt).read(generated_manifests(config, fmt))
"""
# mlcommons/hpc, deepcam: train.py calls get_datashapes (peek_shapes_hdf5), then data/__init__.py makes one CamDataset
# for training and one for validation.
DEEPCAM = """
import glob, os
import h5py as h5
channels = list(range(16))

def shapes(folder):
    with h5.File(next(glob.iglob(os.path.join(folder, "**/*.h5"), recursive=True)), "r") as f:
        return f["climate"]["data"].shape, f["climate"]["labels_0"].shape

def dataset(folder, stats):
    shapes(folder)
    with h5.File(stats, "r") as f:
        shift = f["climate"]["minval"][channels]
        return 1. / (f["climate"]["maxval"][channels] - shift)

here = os.path.abspath("plain")
shapes(f"{here}/train")
dataset(f"{here}/train", f"{here}/stats.h5")
dataset(f"{here}/eval", f"{here}/stats.h5")
"""
# NERSC/DL-Parallel-IO, clim_deep_learn, tiramisu_helpers.py: h5_input_reader, made for training and for validation.
CDB = """
import os
import h5py as h5
channels = [0, 1, 2, 10]
for _ in range(2):
    with h5.File(os.path.abspath("plain/stats.h5"), "r", libver="latest") as f:
        f["climate"]["stats"][channels, 0], f["climate"]["stats"][channels, 1]
"""
CASES: dict[str, tuple[str, list[str]]] = {
    "deepcam": (
        DEEPCAM,
        [
            "dataset.fields.0.shape=[24,36,16]",
            "dataset.fields.1.shape=[24,36]",
            "dataset.num_files=1",
            "dataset.num_files_eval=1",
        ],
    ),
    "cdb": (
        CDB,
        ["dataset.fields.0.shape=[16,24,36]", "dataset.fields.1.shape=[24,36]", "dataset.num_files=1"],
    ),
}


@needs_strace
@pytest.mark.parametrize("recipe", CASES)
def test_the_calls_are_those_of_the_application(recipe: str, tmp_path: Path) -> None:
    plain, options = CASES[recipe]
    folder = tmp_path / "files"
    arguments = [f"recipe={recipe}", "scale=tiny", f"dataset.root={folder}", *options]
    _, manifests = make(compose(arguments).config)
    ours = manifests["train"].folder
    shutil.copytree(ours, folder / "plain")
    calls = straced(OURS + plain, folder, *arguments)

    def of(name: str) -> dict[str, list[tuple[str, str, int]]]:
        # What opens a folder looks for files.
        mine = {path: made for path, made in calls.items() if path.startswith(f"{name}/") and path.endswith(".h5")}
        return {path.removeprefix(f"{name}/"): made for path, made in mine.items()}

    assert of(ours.name) == of("plain")
    assert [name for name, _, _ in of(ours.name)["stats.h5"]].count("openat") == 2
    # In the same order, too.
    log = (tmp_path / "files.strace").read_text().splitlines()
    opens = [line for line in log if "openat(" in line and f"{folder}/" in line and '.h5"' in line]
    names = [line.split('"')[1].removeprefix(f"{folder}/").split("/", 1)[1] for line in opens]
    assert names[: len(names) // 2] == names[len(names) // 2 :]


def small(tmp_path: Path, *options: str) -> list[str]:
    return [
        "recipe=deepcam",
        "scale=tiny",
        f"dataset.root={tmp_path}/data",
        f"output.root={tmp_path}/runs",
        *CASES["deepcam"][1],
        "train.batch_size=1",
        "loader=main_process",
        "compute=none",
        "storage.limits=off",
        "output.progress=false",
        *options,
    ]


def test_the_file_is_generated_once_and_its_absence_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", *small(tmp_path)]) == 0
    (stats,) = (tmp_path / "data").rglob("stats.h5")
    before = stats.stat().st_mtime_ns
    assert cli.main(small(tmp_path)) == 0
    assert stats.stat().st_mtime_ns == before
    stats.unlink()
    capsys.readouterr()
    assert cli.main(["train", *small(tmp_path)]) == 3
    assert f"dataset.once: {stats} does not exist; write the file with the verb generate" in capsys.readouterr().err
    # So that a run writes it, and nothing else.
    assert cli.main(["generate", *small(tmp_path)]) == 0
    assert stats.is_file()
    # Existing data have to bring it; it is none of the samples' files.
    assert cli.main(small(tmp_path, f"dataset.path={stats.parent}")) == 0
    stats.unlink()
    assert cli.main(small(tmp_path, f"dataset.path={stats.parent}")) == 3
    assert f"dataset.once: {stats} does not exist" in capsys.readouterr().err


FIELDS = "fields: [{name: a, shape: [4]}]}"


@pytest.mark.parametrize(
    ("once", "words"),
    [
        ("[{name: stats.h5}]", "dataset.once.0.fields"),
        ("[{fields: [{name: a}]}]", "arrays and columns need a file name"),
        (f"[{{name: a/b, {FIELDS}]", "this name cannot be used for a file next to the data"),
        (f"[{{name: train, {FIELDS}]", "this name cannot be used for a file next to the data"),
        (f"[{{name: s, columns: [4], {FIELDS}]", "array a does not have these columns"),
        (
            f"[{{name: s, {FIELDS}, {{name: s, rows: 2, {FIELDS}]",
            "an earlier element of dataset.once describes the same file",
        ),
        (
            "[{name: s, fields: [{name: a, shape: [4], select: [1]}]}]",
            "arrays of dataset.once have a fixed shape and are read whole",
        ),
    ],
)
def test_what_cannot_be_is_refused(once: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["recipe=minimal", "dataset=hdf5", f"dataset.once={once}"])
    assert words in str(caught.value)


def test_a_format_that_reads_no_columns_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["dataset=npz", f"dataset.once=[{{name: s.npz, columns: [1], {FIELDS}]"]
    assert cli.main(["generate", "recipe=minimal", f"dataset.root={tmp_path}", *options]) == 2
    assert (
        "dataset.once.0.columns=[1] cannot be used with format npz, which reads whole arrays" in capsys.readouterr().err
    )


def test_other_formats_read_their_own_files_once(tmp_path: Path) -> None:
    options = ["dataset=npz", f"dataset.once=[{{name: s.npz, rows: 3, {FIELDS}, {{}}]", "train.steps=1"]
    arguments = ["recipe=minimal", f"dataset.root={tmp_path}/data", f"output.root={tmp_path}/runs", *options]
    assert cli.main([*arguments, "scale=tiny", "storage.limits=off", "output.progress=false"]) == 0
    assert len(list((tmp_path / "data").rglob("s.npz"))) == 1
