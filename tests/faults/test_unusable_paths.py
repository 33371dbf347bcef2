"""Paths that cannot be used end in one line that says why, truly, with exit code 2 or 3."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.syserrors import refused

LONG = "n" * 300
KEYS = ("dataset.root", "dataset.path", "stage.dir", "train.resume", "output.root", "output.dir", "checkpoint.root")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """The line of a command that ends with this exit code and has written nothing."""
    assert cli.main(list(words)) == code
    (line,) = (one for one in capsys.readouterr().err.splitlines() if not one.startswith("scale: "))
    assert line.startswith("dlio_torch: error: ")
    assert not any(Path.cwd().iterdir())
    return line


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("verb", [["run"], ["run", "--dry-run"], ["clean", "--yes"], ["doctor"]], ids=" ".join)
def test_a_name_that_is_too_long_is_refused_with_its_key(
    key: str, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, 2, *verb, "recipe=minimal", f"{key}=ok/{LONG}/ok")
    assert line.startswith(f"dlio_torch: error: {key}=ok/{LONG}/ok (command line): contains a name of 300 bytes")
    assert line.endswith("choose a shorter name")


def test_letters_of_several_bytes_count_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert "256 bytes" in refusal(capsys, 2, "recipe=minimal", f"dataset.root={'ä' * 128}", "--dry-run")


def test_a_path_that_is_too_long_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the system allows 4095" in refusal(capsys, 2, "recipe=minimal", f"dataset.root={'ab/' * 1400}")


def test_the_name_of_a_checkpoint_counts_too(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ("checkpoint.layout=files", "checkpoint.every_epochs=1", f"checkpoint.files=[{{name: {LONG}, bytes: 1KiB}}]")
    assert "checkpoint.files" in refusal(capsys, 2, "recipe=minimal", *keys)


@pytest.mark.parametrize(
    "words",
    [
        ("report", LONG),
        ("report", ".", "--output", LONG),
        ("compare", LONG, LONG),
        ("sweep", "recipe=minimal", "loader.num_workers=0,1", f"output={LONG}"),
        ("trace", "--output", LONG, "--", "true"),
    ],
    ids=" ".join,
)
def test_an_argument_that_is_too_long_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert LONG in refusal(capsys, 3, *words)


def test_a_name_that_becomes_too_long_later_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    # The folder of the data set below it is longer than any path may be.
    root = "/".join(["a" * 200] * 20) + "/" + "b" * 60
    assert "File name too long" in refusal(capsys, 3, "generate", "recipe=minimal", f"dataset.root={root}")


@pytest.mark.parametrize("key", ["dataset.root", "output.root", "output.dir", "stage.dir"])
def test_nothing_is_said_to_be_removed_that_never_was(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.path.isdir("/proc/self"):
        pytest.skip("there is no /proc, which takes no files")
    cli.main(["run", "recipe=minimal", "scale=tiny", f"{key}=/proc/x"])
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("dlio_torch: error: ")
    assert "removed" not in line
    assert "full" not in line


def test_what_was_removed_is_said_to_be(tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "file"
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", str(gone))
    assert "another program removed the file" in str(
        refused("it cannot be written", error, elsewhere="set output.root")
    )
