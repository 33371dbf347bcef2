"""Flags, keys and words that are paths refuse URLs before anything is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.commands.command_line import FLAGS, PATH_WORDS
from dlio_torch.study.verb_keys import KEYS

URL = "s3://bucket/x"
RECIPE = "recipe=minimal"
OF_A_FLAG = {"trace": ["--", "true"], "compare": ["a", "b"], "report": ["a"], "import-dlio": ["a.yaml"]}
WORDS = {"import-dlio": [], "inspect": [], "report": [], "compare": ["runs/a"], "predict": [], "clean": [], "fit": []}
OF_A_JOB = ["scheduler=slurm", "nodes=1", "ranks_per_node=1", "time=1h"]


def arguments() -> list[tuple[list[str], str]]:
    """Command lines with a URL for each flag, key and word, and the argument that is refused."""
    lines: list[tuple[list[str], str]] = []
    for flag, about in FLAGS.items():
        value = f"B={URL}" if flag == "--repeat" else URL
        for verb in about.verbs if about.path else ():
            lines.append(([verb, flag, value, *OF_A_FLAG.get(verb, [])], f"{flag} {value}"))
            lines.append(([verb, f"{flag}={value}", *OF_A_FLAG.get(verb, [])], f"{flag} {value}"))
    for verb, keys in KEYS.items():
        settings = OF_A_JOB if verb == "launch" else []
        for key, about in keys.items():
            if about.path:
                lines.append(([verb, RECIPE, *settings, f"{key}={URL}"], f"{key}={URL}"))
    for verb in ("sweep", "tune", "headspace"):
        job = [one for one in OF_A_JOB if not one.startswith(("nodes", "ranks"))]
        lines.append((["launch", verb, RECIPE, *job, f"output={URL}"], f"output={URL}"))
    for verb in PATH_WORDS:
        lines.append(([verb, *WORDS[verb], URL], f"{verb} {URL}"))
    for verb in ("run", "generate", "train", "show", "sweep", "tune", "headspace", "node", "doctor", "clean"):
        lines.append(([verb, f"recipe={URL}"], f"recipe={URL}"))
    return lines


@pytest.mark.parametrize(("line", "refused"), arguments(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_url_is_refused_in_one_line(
    line: list[str], refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(line) == 2
    assert capsys.readouterr().err == (
        f"dlio_torch: error: {refused} (command line): no storage supports s3:// URLs; "
        "supported are paths (no scheme); use a local path; mount the bucket first\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_every_flag_and_key_that_names_a_path_is_checked() -> None:
    flags = {name for name, flag in FLAGS.items() if flag.path}
    assert flags == {"--output", "--resume", "--include", "--exclude", "--repeat", "--rerun"}
    keys = {key for keys in KEYS.values() for key, about in keys.items() if about.path}
    assert keys == {"study", "output", "setup", "python", "local", "script", "template"}
    folders = {name for name, flag in FLAGS.items() if flag.example in ("PATH", "DIR")}
    folders |= {key for keys in KEYS.values() for key, about in keys.items() if about.example == "DIR"}
    assert folders <= flags | keys


def test_the_url_of_a_local_file_is_written_as_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "file:///scratch/run"]) == 2
    assert capsys.readouterr().err.endswith("; write /scratch/run\n")


def test_paths_with_colons_and_slashes_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("s3:/bucket/x", "./s3://bucket/x", "12://x", "a b://x"):
        assert cli.main(["report", path]) != 2
