"""The verb inspect and dataset=auto: what existing data hold, the block to paste, and one line for every mistake."""

from __future__ import annotations

import json
import os
import shlex
import socket
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import stand_in_descriptions
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.formats.core import data_listing, inspection


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in_descriptions.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hdf5(path: str, samples: int = 6) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((samples, 4, 5), np.float32)
        file["labels"] = np.zeros(samples, np.int64)


def npy(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.zeros((5, 3), np.int16))


def inspected(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["inspect", *words, "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def block(text: str) -> dict[str, Any]:
    """The ``dataset:`` block of the output, as pasted into a file."""
    lines = text[text.index("in a recipe:") :].splitlines()[1:]
    result: dict[str, Any] = yaml.safe_load("\n".join(lines))
    return result


def test_format_amount_arrays_and_settings_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    hdf5("data/a.h5")
    hdf5("data/sub/b.hdf5", 4)
    assert cli.main(["inspect", "data"]) == 0
    text = capsys.readouterr().out
    for part in ("data: hdf5", "files     2, ", "samples   10", "images float32 [4, 5]; labels int64", "- a stand-in"):
        assert part in text
    assert "  python -m dlio_torch dataset.path=data\n" in text
    assert block(text) == {
        "dataset": {
            "path": "data",
            "format": "hdf5",
            "fields": [
                {"name": "images", "dtype": "float32", "shape": [4, 5]},
                {"name": "labels", "dtype": "int64", "shape": []},
            ],
        }
    }
    result = inspected(capsys, "data")
    assert (result["schema"], result["version"]) == ("dlio_torch.inspection", "1")
    assert (result["format"], result["files"], result["samples"], result["problem"]) == ("hdf5", 2, 10, "")
    assert result["bytes"] == sum(path.stat().st_size for path in Path("data").rglob("*.h*5"))
    assert result["dataset"] == {key: value for key, value in block(text)["dataset"].items() if key != "path"}
    assert [array["name"] for array in result["arrays"]] == ["images", "labels"]
    assert result["questions"] == []
    assert result["command"] == "python -m dlio_torch dataset.path=data"


def test_a_written_recipe_runs_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    hdf5("my data/a: b #1.h5")
    assert cli.main(["inspect", "my data/a: b #1.h5", "--output", "mine.yaml"]) == 0
    text = capsys.readouterr()
    assert "recipe: mine.yaml" in text.err
    command = next(line for line in text.out.splitlines() if line.startswith("  python"))
    assert shlex.split(command)[3:] == ["dataset.path=my data/a: b #1.h5"]
    config = compose(["recipe=./mine.yaml"]).config
    assert config.description == "data of my data/a: b #1.h5"
    assert config.scale.name == "as_written"
    assert cli.main(["run", "recipe=./mine.yaml", "output.dir=read", "--quiet"]) == 0
    summary = json.loads(Path("read/summary.json").read_text())
    assert summary["train"]["samples"] + summary["warmup"]["samples"] == 6


def test_the_data_are_inspected_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5("data/a.h5")
    paths, inspect_path = [], inspection.inspect_path

    def noted(path: str, format_name: str = "") -> inspection.Inspection:
        paths.append(path)
        return inspect_path(path, format_name)

    monkeypatch.setattr(inspection, "inspect_path", noted)
    assert inspected(capsys, "data")["samples"] == 6
    assert paths == ["data"]


def test_questions_are_asked_and_answered(capsys: pytest.CaptureFixture[str]) -> None:
    npy("data/a.npy")
    setting = "dataset.fields=[{name: x, dtype: int16, shape: [3]}]"
    assert cli.main(["inspect", "data", "--output", "open.yaml"]) == 0
    text = capsys.readouterr().out
    assert "to be set: the name is unknown; add " in text
    assert f"  python -m dlio_torch dataset.path=data '{setting}'" in text
    recipe = Path("open.yaml").read_text()
    assert "# To be checked: the name is unknown." in recipe
    assert "an unknown number of samples" in recipe
    answer = "dataset.fields=[{name: y, dtype: int16, shape: [3]}]"
    result = inspected(capsys, "data", answer)
    assert (result["questions"], result["samples"]) == ([], 5)
    assert result["dataset"]["fields"] == [{"name": "y", "dtype": "int16", "shape": [3]}]
    assert shlex.split(result["command"])[-1] == answer
    for words, text in ((("dataset.path=data",), "the name is unknown; add"), (("dataset.path=data", setting), "")):
        assert cli.main([*words, "--dry-run"]) == (2 if text else 0)
        assert text in capsys.readouterr().err


def test_a_mixture_is_named_with_counts(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        npy(f"mix/{number}.npy")
    for number in range(2):
        hdf5(f"mix/{number}.h5")
    Path("mix/notes.txt").write_text("x")
    Path("mix/gone.h5").symlink_to("nowhere")
    assert cli.main(["inspect", "mix"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "mix: npy files 3 " in text
    assert "1 .txt, 2 of format hdf5 (dataset.format=hdf5 reads them), 1 broken links" in text
    other = inspected(capsys, "mix", "dataset.format=hdf5", code=3)  # a run reads the link, too
    assert other["format"] == "hdf5"
    assert "gone.h5" in other["problem"]
    Path("mix/gone.h5").unlink()
    npy("mix/sub.npy")
    hdf5("mix/3.h5")
    hdf5("mix/4.h5")
    assert inspected(capsys, "mix")["format"] == "hdf5"  # of equal counts the first by name


UNREADABLE = [
    ("nowhere", "nowhere does not exist"),
    ("", "the path is empty"),
    ("empty", "empty contains no files"),
    ("links", "links contains no files (it holds 1 broken links)"),
    ("broken", "broken is a link to nowhere, which does not exist"),
    ("socket", "socket is neither a file nor a folder"),
    ("pipe", "pipe is neither a file nor a folder"),
    ("/dev/null", "/dev/null is neither a file nor a folder"),
    ("zero", "zero is empty (0 bytes)"),
    ("junk.xyz", "junk.xyz: the format of this file is unknown (it begins with the bytes 01 02 03)"),
    ("folders/*", "folders/* matches 1 folder and no file; name the files in them: folders/*/*"),
    ("*.none", "*.none does not exist"),
    ("damaged.h5", "damaged.h5 is damaged"),
    ("x" * 300, "File name too long"),
]


@pytest.mark.parametrize(("path", "text"), UNREADABLE, ids=[path[:20] for path, _ in UNREADABLE])
@pytest.mark.parametrize("verb", ["inspect", "auto"])
def test_what_cannot_be_read_is_one_line(
    verb: str, path: str, text: str, capfd: pytest.CaptureFixture[str], folder: Path
) -> None:
    for name in ("empty", "links", "folders/inner"):
        Path(name).mkdir(parents=True)
    hdf5("folders/inner/a.h5")
    Path("links/a.h5").symlink_to("nowhere")
    Path("broken").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
    os.mkfifo("pipe")
    Path("zero").touch()
    Path("junk.xyz").write_bytes(b"\1\2\3")
    Path("damaged.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(50))
    before = sorted(os.listdir())
    words = ["inspect", path] if verb == "inspect" else [f"dataset.path={path}", "recipe=custom", "--dry-run"]
    if verb == "auto" and not path:
        return
    assert cli.main(words) in ((3,) if verb == "inspect" else (2, 3))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    if verb == "inspect" or len(path) < 300:
        assert text in printed.err
    assert sorted(os.listdir()) == before


def test_a_folder_without_permission_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    hdf5("data/a.h5")
    Path("data/locked").mkdir(mode=0)
    assert cli.main(["inspect", "data"]) == 0
    assert "1 folders without permission" in capsys.readouterr().out


def test_a_huge_folder_is_listed_in_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_listing, "MOST_FILES", 3)
    for number in range(3):
        for inner in range(2):
            npy(f"data/{number}/{inner}.npy")
    assert cli.main(["inspect", "data"]) == 0
    assert "files  4 or more, of which the first were counted" in capsys.readouterr().out


MISTAKES = [
    (["inspect"], "inspect: nothing (command line): exactly one path is needed"),
    (["inspect", "a.h5", "b.h5"], "exactly one path is needed"),
    (["inspect", "a.h5", "scale=tiny"], "scale=tiny (command line): inspect takes options of dataset only"),
    (["inspect", "a.h5", "train.epochs=2"], "train.epochs=2 (command line): inspect takes options of dataset only"),
    (["inspect", "a.h5", "dataset.formt=npz"], "did you mean dataset.format?"),
    (["inspect", "a.h5", "dataset.format=npzz"], "did you mean 'npz'?"),
    (["inspect", "a.h5", "dataset.path=b.h5"], "inspect takes the path as a word"),
    (["inspect", "a.h5", "dataset.root=x"], "dataset.root=x (command line): only generated data have this option"),
    (["inspect", "a.h5", "dataset.num_files=3"], "dataset.num_files=3 (command line): only generated data"),
    (["inspect", "a.h5", "dataset.fields.5.dtype=float64"], "dataset.fields has 2 elements; the last one is dataset.f"),
    (["inspect", "a.h5", "dataset.fields.1.shape.0=3"], "dataset.fields.1.shape has 0 elements; set the whole list"),
    (["inspect", "a.h5", "dataset.fields=x", "dataset.fields.0.dtype=int8"], "dataset.fields is x, which has no 0"),
    (["inspect", "a.h5", "dataset.once.0.name=x"], "dataset.once has 0 elements; set the whole list"),
    (["inspect", "a.h5", "dataset.fields=[{"], "dataset.fields=[{ (command line):1: malformed YAML"),
    (["inspect", "a.h5", "dataset.hdf5.reopen={"], "dataset.hdf5.reopen={ (command line):1: malformed YAML"),
    (["inspect", "a.h5", "dataset.hdf5.reopen=2026-02-31"], "dataset.hdf5.reopen=2026-02-31 (command line): malformed"),
    (["inspect", "a.h5", "--output", "mine.txt"], "the name of a recipe must end in .yaml"),
    (["inspect", "s3://bucket/x"], "s3://bucket/x"),
    (["dataset=auto", "recipe=minimal"], "dataset=auto (command line): the format is read from your files"),
    (["recipe=custom"], "the format is read from your files, and dataset.path is not set"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_in_the_arguments_is_one_line(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hdf5("a.h5")
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert text in printed.err


def test_auto_is_a_choice_of_any_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    hdf5("a.h5")
    given = compose(["recipe=minimal", "dataset=auto", "dataset.path=a.h5"]).config
    assert [field.name for field in given.dataset.fields] == ["images", "labels"]
    Path("mine.yaml").write_text("defaults: [{dataset: auto}]\ndataset: {path: a.h5}\n")
    recipe = compose(["recipe=mine.yaml"])
    assert recipe.config.dataset.fields == given.dataset.fields
    assert recipe.sources["dataset.fields.0.name"] == "inspection of a.h5"
    changed = compose(["recipe=mine.yaml", "dataset.fields.0.dtype=float16"]).config
    assert [field.dtype for field in changed.dataset.fields] == ["float16", "int64"]
    assert cli.main(["show", "dataset.path=a.h5"]) == 0
    assert "# inspection of a.h5" in capsys.readouterr().out


def test_a_home_folder_is_known(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    hdf5("a.h5")
    assert inspected(capsys, "~/a.h5")["samples"] == 6
    assert cli.main(["dataset.path=~/a.h5", "--dry-run"]) == 0


_NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(name=_NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_name_comes_back_from_the_block_and_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"data/{name}.h5"
    if any(mark in name for mark in "*?[{$~") or len(path.encode()) > 200:
        return
    hdf5(path)
    capsys.readouterr()
    try:
        assert cli.main(["inspect", path, "--output", "mine.yaml", "--force"]) == 0
        text = capsys.readouterr().out
        assert block(text)["dataset"]["path"] == path
        command = next(line for line in text.splitlines() if line.startswith("  python -m"))
        assert shlex.split(command)[3:] == [f"dataset.path={path}"]
        assert compose(["recipe=./mine.yaml"]).config.dataset.path == path
    finally:
        Path(path).unlink()


def test_help_and_lists_mention_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "inspect" in capsys.readouterr().out
    assert cli.main(["inspect", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("--output PATH", "--force", "--json", "exit code 3", "inspect mine --output mine.yaml"):
        assert part in text
    assert cli.main(["ls", "dataset", "scales", "recipes"]) == 0
    text = capsys.readouterr().out
    for name in ("auto", "as_written", "custom"):
        assert name in text
    for word in ("inspection", "as written"):
        assert cli.main(["explain", word]) == 0
        assert "inspect" in capsys.readouterr().out


def test_a_small_data_set_fills_a_smaller_batch(capsys: pytest.CaptureFixture[str]) -> None:
    hdf5("few.h5", 5)
    hdf5("some.h5", 40)
    assert cli.main(["dataset.path=few.h5", "--dry-run"]) == 0
    assert "steps: 1 per rank and epoch, 1 epoch, 5 samples per rank" in capsys.readouterr().out
    assert cli.main(["dataset.path=few.h5", "train.batch_size=32", "--dry-run"]) == 2
    assert "train.batch_size=32 (command line)" in capsys.readouterr().err
    assert cli.main(["dataset.path=some.h5", "--dry-run"]) == 0
    assert "an epoch does not read 8 of 40 samples" in capsys.readouterr().out
    for option in ("access.tail=pad", "train.batch_size=8", "train.steps=1"):
        assert cli.main(["dataset.path=some.h5", option, "--dry-run"]) == 0
        assert "does not read" not in capsys.readouterr().out
