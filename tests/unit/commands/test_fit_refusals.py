"""Bad input of fit: one line that says what is missing, exit code 2 or 3, and nothing written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dlio_torch.cli import main

KILLED = "kill -9 $$"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of small programs without torch."""
    folder = tmp_path_factory.mktemp("recordings")
    data = folder / "data.bin"
    data.write_bytes(bytes(1 << 16))
    for name, program in (
        ("copy", ["cat", str(data)]),
        ("nothing", ["true"]),
        ("killed", ["sh", "-c", f"cat {data}; {KILLED}"]),
        ("failed", ["sh", "-c", f"cat {data}; exit 7"]),
    ):
        main(["trace", "--output", str(folder / name), "--include", str(folder), "--", *program])
    for name in ("cut", "damaged"):
        shutil.copytree(folder / "copy", folder / name)
    command = folder / "cut/command.json"
    about = json.loads(command.read_text(encoding="utf-8"))
    command.write_text(json.dumps({key: about[key] for key in ("command", "cwd")}), encoding="utf-8")
    for calls in (folder / "damaged/events").glob("*.posix"):
        content = calls.read_bytes()
        calls.write_bytes(content[:100])
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("copy", "no training in it: no process imported torch, and nothing was read twice"),
        ("nothing", "no file of data was read"),
        ("killed", "the recorded program was killed by SIGKILL (exit code 137)"),
        ("failed", "the recorded program failed with exit code 7"),
        ("cut", "the recording stops before the end of the program"),
        ("damaged", "events are missing: "),
        ("empty", "is not a recording: it looks like an empty folder"),
        ("absent", "does not exist"),
    ],
)
def test_recordings_from_which_no_recipe_follows(
    name: str, says: str, recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    code = main(["fit", str(recordings / name), "--output", str(tmp_path / "mine")])
    (line,) = capsys.readouterr().err.splitlines()
    assert code in (2, 3)
    assert line.startswith("dlio_torch: error: ")
    assert says in line
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "exactly one recording is needed"),
        (["a", "b"], "fit: a b (command line): exactly one recording is needed"),
        (["rec"], "no folder for the recipe is given; fit rec --output mine"),
        (["rec", "--output", "mine", "--rerun", "b", "--no-score"], "--no-score leaves it out"),
    ],
)
def test_arguments(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
